"""FullyShardedDataParallel trains on collops as on gloo, in each way of sharding."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy  # noqa: E402
from torch.distributed.fsdp.wrap import ModuleWrapPolicy  # noqa: E402

from tests.torch.training.training import Compared, make_model, train  # noqa: E402


def sharded(strategy: str, **options: Any) -> list[float]:
    model = FullyShardedDataParallel(
        make_model(),
        sharding_strategy=ShardingStrategy[strategy],
        auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}),
        device_id=torch.device("cpu"),
        **options,
    )
    return train(model)


def hybrid(strategy: str) -> list[float]:
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    return sharded(strategy, device_mesh=mesh)


ON_TWO = {
    "full_shard": lambda: sharded("FULL_SHARD"),
    "original_parameters": lambda: sharded("FULL_SHARD", use_orig_params=True),
}
ON_FOUR = {
    "full_shard": ON_TWO["full_shard"],
    "hybrid": lambda: hybrid("HYBRID_SHARD"),
}
TWO, FOUR = Compared(ON_TWO, 2), Compared(ON_FOUR, 4)


@pytest.mark.parametrize("name", ON_TWO)
def test_two_ranks(name: str) -> None:
    TWO.check(name)


@pytest.mark.parametrize("name", ON_FOUR)
def test_four_ranks(name: str) -> None:
    FOUR.check(name)
