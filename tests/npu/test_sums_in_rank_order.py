"""COLLOPS_HCCL_SUMS=rank_order gives the sums of the CPU, bit for bit."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

RANKS = 3
ROWS = [4, 0, 7]


def sums(npu: Any, torch: ModuleType, dtype: str) -> list[tuple[bool, ...]]:
    """Which sums on hccl have the bits of shm's, on each rank."""

    def work(rank: int) -> tuple[bool, ...]:
        npu.choose(rank)
        cpu, device = collops.init(comm_domain="cpu"), collops.init(backend="hccl")
        draw = np.random.default_rng(rank)

        def same(name: str, count: int, *args: Any) -> bool:
            numbers = draw.normal(size=(count, 33)) * 10.0 ** draw.integers(-3, 4, (count, 33))
            x = torch.tensor(numbers).to(getattr(torch, dtype))
            want = getattr(cpu, name)(x, *args)
            got = getattr(device, name)(x.npu(), *args).cpu()
            return bool(torch.equal(got.view(torch.uint8), want.view(torch.uint8)))

        even = same("reduce_scatter", 6)
        whole = [same("all_reduce", count) for count in (1, 2, 3)]
        return same("reduce_scatterv", sum(ROWS), ROWS), even, *whole

    return run_ranks(work, RANKS)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_sums(
    npu: Any, torch_module: ModuleType, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    in_hccls_order = sums(npu, torch_module, dtype)
    assert not any(all(rank[1:]) for rank in in_hccls_order)  # the data shows a difference
    monkeypatch.setenv("COLLOPS_HCCL_SUMS", "rank_order")
    assert sums(npu, torch_module, dtype) == [(True,) * 5] * RANKS
