"""Every call of torch.distributed on CUDA tensors gives the bits that it gives on CPU tensors."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from device_calls import CALLS, compared
from gpu_groups import BACKENDS, BOTH, on, run_gpu_group
from groups import default_group

import collops.torch
import collops.torch as ct
from collops.core import core

# The backend cuda has no messages between two ranks.
_MESSAGES = (
    "send and recv, one pair after the other",
    "batch_isend_irecv around a ring",
    "futures of messages within a batch, in another mode than its end",
)


def _outcomes(rank: int, size: int) -> dict[str, tuple[Any, Any]]:
    return compared(rank, size, f"cuda:{rank}")


@functools.cache
def _outcomes_of_ranks(size: int, backend: str) -> list[dict[str, tuple[Any, Any]]]:
    return run_gpu_group(_outcomes, size, size, env=on(backend))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("name", CALLS)
def test_a_call(name: str, size: int, backend: str) -> None:
    for rank, found in enumerate(_outcomes_of_ranks(size, backend)):
        on_cpu, on_gpu = found[name]
        assert not isinstance(on_cpu, str), on_cpu
        if backend == "cuda" and name in _MESSAGES and size > 1:
            assert "has no messages between two ranks: use nccl" in on_gpu or on_gpu == on_cpu
        else:
            assert on_gpu == on_cpu, f"rank {rank}"


@pytest.mark.parametrize("name", ["collops", BOTH, "cuda:collops,cpu:collops"])
def test_names_of_the_backend(name: str) -> None:
    def work(rank: int) -> tuple[list[float], list[float], str]:
        group, x, y = default_group(), torch.ones(2).cuda(), torch.ones(2)
        dist.all_reduce(x)
        dist.all_reduce(y)
        return x.tolist(), y.tolist(), group.communicator_for(x.device).backend

    assert run_gpu_group(work, 2, backend=name) == [([2, 2], [2, 2], "nccl")] * 2


def test_the_variable_chooses_the_backend() -> None:
    def work(rank: int) -> tuple[str, str]:
        group, x = default_group(), torch.ones(2).cuda()
        dist.all_reduce(x)
        assert x.tolist() == [2, 2]
        return group.communicator.backend, group.communicator_for(x.device).backend

    assert run_gpu_group(work, 2, env=on("cuda")) == [("shm", "cuda")] * 2


def test_the_first_call_asks_no_other_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would load the libraries of UCX, NCCL and HCCL."""
    monkeypatch.delattr(core(), "backends")

    def work(rank: int) -> list[float]:
        x = torch.ones(2).cuda()
        dist.all_reduce(x)
        return x.tolist()

    assert run_gpu_group(work, 2) == [[2, 2]] * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_averages_and_bits_are_the_cores_own(backend: str) -> None:
    """A sum of float16 would be infinite; and bits, which NCCL itself does not reduce."""

    def work(rank: int) -> list[list[float]]:
        x = torch.full((3,), 60000.0 + 32 * rank, dtype=torch.float16).cuda()
        bits = torch.tensor([12 + rank, 7 << rank], dtype=torch.int32).cuda()
        own = ct.all_reduce(x, "avg")
        dist.all_reduce(x, dist.ReduceOp.AVG)
        dist.all_reduce(bits, dist.ReduceOp.BAND)
        return [x.tolist(), own.tolist(), bits.tolist()]

    whole = [60032.0] * 3  # of 60000 and 60032; float16 has multiples of 32 there, ties go to even
    assert run_gpu_group(work, 2, env=on(backend)) == [[whole, whole, [12, 6]]] * 2


def test_the_last_calls_are_listed() -> None:
    def work(rank: int) -> list[str]:
        dist.all_reduce(torch.ones(4, 3).cuda())
        dist.all_reduce(torch.ones(2))
        return collops.torch.last_calls()

    want = ["1 all_reduce [4, 3] float32", "2 all_reduce [2] float32"]
    assert run_gpu_group(work, 2) == [want] * 2
