"""Trains a small GPT on 1, 2, 3 and 4 ranks: losses, gradients and weights have the same bits.

Each rank has some of the tokens, some of the heads and a part of each weight. A layer gathers the
rows of all ranks and multiplies them by its columns; the next one scatters the sum of its products
(Megatron's tensor parallelism, with sequence parallelism). Sums over what the ranks cut are cut in
LEAVES leaves, so that no bit depends on the number of ranks:

    products            collops.torch, forward and backward, with leaves=
    replicated weights  their gradient is a sum over tokens: all_reduce(partials=..., leaves=)
    attention           collops.torch.matmul, head by head
    embedding, logits   a rank has columns; all_to_allv brings the rows to their ranks

What torch computes in between it computes for each row or element alone (docs/same_bits.md says
which of its kernels do). `--leaves 0` adds up in the order of the ranks, and the bits differ.

    python examples/same_bits/gpt.py --ranks 1 2 3 4 --steps 5
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import torch
import torch._dynamo  # the optimizer imports it, which takes seconds: once, not on every rank
from torch.nn import functional

import collops
import collops.torch as ct
from collops.testing import run_ranks

LAYERS, HEADS, HEAD = 2, 12, 8
WIDTH, HIDDEN, VOCABULARY = HEADS * HEAD, 4 * HEADS * HEAD, 96
TEXTS, LENGTH = 2, 24
TOKENS = TEXTS * LENGTH
LEAVES = 12
RANKS = (1, 2, 3, 4, 6)  # which divide the heads
DTYPES = ("float32", "bfloat16")
MAX_STEPS = 1000


class Place(NamedTuple):
    """A rank's communicator, and in how many leaves sums are cut; 0: in none."""

    comm: collops.Communicator
    leaves: int

    @property
    def rows(self) -> int:
        """The tokens of a rank."""
        return TOKENS // self.comm.size

    def own(self, whole: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """This rank's part."""
        return whole.chunk(self.comm.size, dim)[self.comm.rank].contiguous()


class ForEveryToken(torch.autograd.Function):
    """A weight that all ranks have, once for each of this rank's tokens."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, place: Place) -> torch.Tensor:
        """[WIDTH] -> [tokens, WIDTH]."""
        ctx.place = place
        return weight.repeat(place.rows, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """The sum over the tokens of all ranks, by the tree: each token is a leaf."""
        comm, [gradient] = ctx.place.comm, gradients
        if ctx.place.leaves == 0:
            return comm.all_reduce(gradient.sum(0)), None
        return comm.all_reduce(partials=list(gradient.contiguous()), leaves=TOKENS), None


class Model:
    """The weights of a rank, and the layers. Of each weight `cut` says which dim is cut."""

    def __init__(self, place: Place, dtype: torch.dtype) -> None:
        self.place = place
        self.weights: dict[str, torch.Tensor] = {}
        self.cut: dict[str, int | None] = {}
        source = torch.Generator().manual_seed(2026)

        def add(name: str, cut: int | None, *shape: int) -> None:
            whole = 0.1 * torch.randn(shape, generator=source) + (name.endswith("scale") * 1.0)
            whole = whole.to(dtype)
            own = whole if cut is None else place.own(whole, cut)
            self.weights[name], self.cut[name] = own.requires_grad_(), cut

        add("tokens", 1, VOCABULARY, WIDTH)
        add("places", 1, LENGTH, WIDTH)
        for i in range(LAYERS):
            for norm in ("before attention", "before mlp"):
                add(f"{i} {norm} scale", None, WIDTH)
                add(f"{i} {norm} shift", None, WIDTH)
            add(f"{i} heads", 0, 3 * WIDTH, WIDTH)  # q, k and v of a head, then those of the next
            add(f"{i} heads shift", 0, 3 * WIDTH)
            add(f"{i} mix", 1, WIDTH, WIDTH)
            add(f"{i} mix shift", None, WIDTH)
            add(f"{i} up", 0, HIDDEN, WIDTH)
            add(f"{i} up shift", 0, HIDDEN)
            add(f"{i} down", 1, WIDTH, HIDDEN)
            add(f"{i} down shift", None, WIDTH)
        add("last scale", None, WIDTH)
        add("last shift", None, WIDTH)
        add("logits", 0, VOCABULARY, WIDTH)

    def for_every_token(self, name: str) -> torch.Tensor:
        """A weight that all ranks have, [tokens, WIDTH]."""
        rows: torch.Tensor = ForEveryToken.apply(self.weights[name], self.place)
        return rows

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """A layer norm of this rank's rows."""
        scale, shift = (self.for_every_token(f"{name} {word}") for word in ("scale", "shift"))
        return functional.layer_norm(x, (WIDTH,)) * scale + shift

    def columns(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """All rows, and of a layer's result this rank's columns."""
        comm, leaves = self.place
        weight, shift = self.weights[name], self.weights.get(f"{name} shift")
        return ct.all_gather_matmul(
            x, weight, trans_weight=True, residual=shift, leaves=leaves, group=comm
        )

    def rows(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """This rank's rows, of a layer to which each rank has some columns of the input."""
        comm, leaves = self.place
        weight = self.weights[name]
        out = ct.matmul_reduce_scatter(x, weight, trans_weight=True, leaves=leaves, group=comm)
        return out + self.for_every_token(f"{name} shift")

    def to_their_ranks(self, columns: torch.Tensor) -> torch.Tensor:
        """All rows of this rank's columns -> all columns of this rank's rows."""
        comm, sizes = self.place.comm, [self.place.rows] * self.place.comm.size
        return torch.cat(ct.all_to_allv(columns, sizes, sizes, group=comm).split(sizes), 1)

    def attention(self, qkv: torch.Tensor) -> torch.Tensor:
        """Of this rank's heads, one by one: [TOKENS, 3 * columns] -> [TOKENS, columns]."""
        group, leaves = self.place.comm, min(self.place.leaves, 1)
        mask = torch.full((LENGTH, LENGTH), -torch.inf, dtype=qkv.dtype).triu(1)
        texts = []
        for text in qkv.view(TEXTS, LENGTH, -1, 3, HEAD).permute(0, 2, 3, 1, 4).unbind():
            heads = []
            for head in text.unbind():
                q, k, v = head.unbind()
                q = q * HEAD**-0.5
                scores = ct.matmul(q, k, trans_weight=True, leaves=leaves, group=group) + mask
                heads.append(ct.matmul(torch.softmax(scores, -1), v, leaves=leaves, group=group))
            texts.append(torch.cat(heads, 1))
        return torch.cat(texts)

    def losses(self, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        """Of each of this rank's tokens."""
        places = torch.arange(LENGTH).repeat(TEXTS)
        seen = functional.embedding(tokens, self.weights["tokens"])
        x = self.to_their_ranks(seen + functional.embedding(places, self.weights["places"]))
        for i in range(LAYERS):
            qkv = self.columns(self.norm(x, f"{i} before attention"), f"{i} heads")
            x = x + self.rows(self.attention(qkv), f"{i} mix")
            up = self.columns(self.norm(x, f"{i} before mlp"), f"{i} up")
            x = x + self.rows(functional.gelu(up), f"{i} down")
        logits = self.to_their_ranks(self.columns(self.norm(x, "last"), "logits"))
        return functional.cross_entropy(logits, self.place.own(following), reduction="none")


class Step(NamedTuple):
    """The mean loss, and a number for the bits of all gradients and of all weights."""

    loss: float
    gradients: str
    weights: str


def texts_of(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens of a step, each of which is 5 more than the one before, and those that follow."""
    first = torch.randint(VOCABULARY, (TEXTS, 1), generator=torch.Generator().manual_seed(step))
    texts = (first + 5 * torch.arange(LENGTH + 1)) % VOCABULARY
    return texts[:, :-1].flatten(), texts[:, 1:].flatten()


def bits_of(model: Model, of_gradients: bool) -> str:
    """A number for the bits of all ranks' gradients, or weights."""
    digest = hashlib.sha256()
    for name, weight in model.weights.items():
        own = weight.grad if of_gradients else weight.detach()
        assert own is not None
        cut = model.cut[name]
        # What all ranks have must be the same on each: they are put below each other.
        whole = model.place.comm.all_gatherv(own.contiguous(), dim=cut or 0)
        parts = [whole] if cut is not None else whole.chunk(model.place.comm.size)
        digests = {
            hashlib.sha256(part.view(torch.uint8).numpy().tobytes()).digest() for part in parts
        }
        for one in sorted(digests):
            digest.update(one)
    return digest.hexdigest()[:16]


def train(rank: int, steps: int, leaves: int, dtype: str) -> list[Step]:
    """The steps, of one number of ranks."""
    torch.set_num_threads(1)
    found = []
    with collops.init() as comm:
        model = Model(Place(comm, leaves), getattr(torch, dtype))
        optimizer = torch.optim.AdamW(model.weights.values(), lr=3e-3)
        for step in range(steps):
            losses = model.losses(*texts_of(step))
            losses.backward(torch.full_like(losses, 1 / TOKENS))
            parts = list(losses.detach().float().split(1))
            loss = comm.all_reduce(partials=parts, leaves=TOKENS).item() / TOKENS
            gradients = bits_of(model, of_gradients=True)
            optimizer.step()
            optimizer.zero_grad()
            found.append(Step(loss, gradients, bits_of(model, of_gradients=False)))
    return found


def report(found: dict[int, list[Step]]) -> bool:
    """Prints a line per step and number of ranks; whether their bits are the same."""
    print("step  ranks  loss                 gradients         weights")
    for step, of_ranks in enumerate(zip(*found.values(), strict=True)):
        for ranks, one in zip(found, of_ranks, strict=True):
            print(f"{step:4}  {ranks:5}  {one.loss.hex():19}  {one.gradients}  {one.weights}")
    same = len({tuple(steps) for steps in found.values()}) == 1
    numbers = ", ".join(map(str, found))
    print(f"{'the same bits' if same else 'OTHER BITS'} on {numbers} ranks")
    return same


class Parser(argparse.ArgumentParser):
    """The command line; an error in it is one line."""

    def __init__(self) -> None:
        super().__init__(description=(__doc__ or "").split("\n\n")[0], allow_abbrev=False)
        add = self.add_argument
        add("--ranks", type=int, nargs="+", choices=RANKS, default=[1, 2, 3, 4], metavar="P")
        add("--steps", type=int, default=5, metavar="N", help="(default 5)")
        add("--leaves", type=int, choices=(0, LEAVES), default=LEAVES, help="0: in rank order")
        add("--dtype", choices=DTYPES, default="float32")

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2."""
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains on each number of ranks, and compares: 0 if the bits are the same, 1 if not."""
    parser = Parser()
    given = parser.parse_args(arguments)
    if not 1 <= given.steps <= MAX_STEPS:
        parser.error(f"argument --steps: must be from 1 to {MAX_STEPS}, got {given.steps}")
    torch.set_num_threads(1)
    found = {}
    for ranks in dict.fromkeys(given.ranks):
        results = run_ranks(train, ranks, given.steps, given.leaves, given.dtype)
        assert all(result == results[0] for result in results)
        found[ranks] = results[0]
    return 0 if report(found) else 1


if __name__ == "__main__":
    sys.exit(main())
