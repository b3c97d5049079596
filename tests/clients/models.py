"""Tiny models with random weights, of the kinds that vLLM shards in different ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

VOCABULARY = 256
# Large weights: the tokens of a model differ, and no two are nearly as likely.
COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def configs() -> dict[str, Any]:
    """What transformers makes each model from: dense, with experts, and with a shared one too."""
    from transformers import LlamaConfig, MixtralConfig, Qwen2MoeConfig

    qwen = {key: value for key, value in COMMON.items() if key != "head_dim"}
    return {
        "llama": LlamaConfig(**COMMON, intermediate_size=256),
        "mixtral": MixtralConfig(
            **COMMON, intermediate_size=64, num_local_experts=6, num_experts_per_tok=2
        ),
        "qwen2_moe": Qwen2MoeConfig(
            **qwen,
            intermediate_size=64,
            moe_intermediate_size=64,
            shared_expert_intermediate_size=64,
            num_experts=8,
            num_experts_per_tok=4,
        ),
    }


def make(folder: Path) -> None:
    """Writes the models, each into a folder of its name."""
    import torch
    from transformers import AutoModelForCausalLM

    for name, config in configs().items():
        torch.manual_seed(36)
        model = AutoModelForCausalLM.from_config(config).float()
        model.save_pretrained(folder / name)
