"""A small GPT, whose size is fixed: what DDP and FSDP2 train in the benchmark."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

_WORDS, _LENGTH = 256, 64
_WIDTH, _HEADS, _BLOCKS = 192, 4, 3


class Block(nn.Module):
    """Attention to what came before, and an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.queries_keys_values = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.mix = nn.Linear(_WIDTH, _WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[sequences, length, width], before and after."""
        parts = self.queries_keys_values(self.before_attention(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (_HEADS, -1)).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.before_mlp(x))


class Gpt(nn.Module):
    """The next letter's scores; the same weights in every process."""

    def __init__(self) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(7)
            super().__init__()
            self.letters = nn.Embedding(_WORDS, _WIDTH)
            self.places = nn.Parameter(0.02 * torch.randn(_LENGTH, _WIDTH))
            self.blocks = nn.Sequential(*(Block() for _ in range(_BLOCKS)))
            self.scores = nn.Linear(_WIDTH, _WORDS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """The mean loss of all letters of text [sequences, length], each after those before."""
        x = self.blocks(self.letters(text) + self.places)
        scores = self.scores(x[:, :-1]).flatten(0, 1)
        return functional.cross_entropy(scores, text[:, 1:].flatten())


def text_of(rank: int, sequences: int) -> torch.Tensor:
    """The letters [sequences, length] that a rank trains on."""
    numbers = torch.Generator().manual_seed(rank)
    return torch.randint(_WORDS, (sequences, _LENGTH), generator=numbers)


def gpt_bytes() -> int:
    """Bytes of the parameters, and so of the gradients that a step exchanges."""
    each_block = 12 * _WIDTH**2 + 13 * _WIDTH
    return 4 * (_BLOCKS * each_block + (2 * _WORDS + _LENGTH) * _WIDTH + _WORDS)
