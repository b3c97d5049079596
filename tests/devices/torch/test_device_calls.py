"""Every call of torch.distributed on tensors of devices gives the bits that CPU tensors get."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist

import collops.torch
from collops.core import core
from tests.devices.torch.device_groups import BACKENDS, BOTH, KIND, OWN, on, run_device_group
from tests.torch.device_calls import CALLS, compared
from tests.torch.groups import default_group

# The backend cuda has no messages between two ranks.
_MESSAGES = (
    "send and recv, one pair after the other",
    "batch_isend_irecv around a ring",
    "futures of messages within a batch, in another mode than its end",
)


def _outcomes(rank: int, size: int) -> dict[str, tuple[Any, Any]]:
    return compared(rank, size, f"{KIND}:{rank}")


@functools.cache
def _outcomes_of_ranks(size: int, backend: str) -> list[dict[str, tuple[Any, Any]]]:
    return run_device_group(_outcomes, size, size, env=on(backend))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [1, 2, 3, 4] if KIND == "npu" else [1, 2, 3])
@pytest.mark.parametrize("name", CALLS)
def test_a_call(name: str, size: int, backend: str) -> None:
    for rank, found in enumerate(_outcomes_of_ranks(size, backend)):
        on_cpu, on_device = found[name]
        assert not isinstance(on_cpu, str), on_cpu
        if backend == "cuda" and name in _MESSAGES and size > 1:
            assert "has no messages between two ranks: use nccl" in on_device or on_device == on_cpu
        else:
            assert on_device == on_cpu, f"rank {rank}"


@pytest.mark.parametrize("name", ["collops", BOTH, f"{KIND}:collops,cpu:collops"])
def test_names_of_the_backend(name: str) -> None:
    def work(rank: int) -> tuple[list[float], list[float], str]:
        group, x, y = default_group(), torch.ones(2).to(KIND), torch.ones(2)
        dist.all_reduce(x)
        dist.all_reduce(y)
        return x.tolist(), y.tolist(), group.communicator_for(x.device).backend

    assert run_device_group(work, 2, backend=name) == [([2, 2], [2, 2], OWN)] * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_variable_chooses_the_backend(backend: str) -> None:
    def work(rank: int) -> tuple[str, str]:
        group, x = default_group(), torch.ones(2).to(KIND)
        dist.all_reduce(x)
        assert x.tolist() == [2, 2]
        return group.communicator.backend, group.communicator_for(x.device).backend

    assert run_device_group(work, 2, env=on(backend)) == [("shm", backend)] * 2


def test_the_first_call_asks_no_other_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would load the libraries of UCX, NCCL and HCCL."""
    monkeypatch.delattr(core(), "backends")

    def work(rank: int) -> list[float]:
        x = torch.ones(2).to(KIND)
        dist.all_reduce(x)
        return x.tolist()

    assert run_device_group(work, 2) == [[2, 2]] * 2


def test_tensors_may_be_named() -> None:
    def work(rank: int) -> tuple[list[float], list[float]]:
        group, x = default_group(), torch.full((2,), float(rank)).to(KIND)
        out, own = torch.empty(4, device=KIND), torch.empty(2, device=KIND)
        group.all_gather_single(output=out, input=x).wait()
        if rank == 0:
            group.send(tensors=[x + 7], dstRank=1, tag=0).wait()
        else:
            group.recv(tensors=[own], srcRank=0, tag=0).wait()
        return out.tolist(), own.tolist() if rank else []

    assert run_device_group(work, 2) == [([0, 0, 1, 1], []), ([0, 0, 1, 1], [7, 7])]


def test_objects_and_barriers() -> None:
    def work(rank: int) -> list[Any]:
        every: list[Any] = [None] * 2
        dist.all_gather_object(every, {"rank": rank})
        x = torch.ones(1).to(KIND)
        dist.all_reduce(x)
        dist.barrier()
        return [*every, x.item()]

    assert run_device_group(work, 2) == [[{"rank": 0}, {"rank": 1}, 2.0]] * 2


def test_the_last_calls_are_listed() -> None:
    def work(rank: int) -> list[str]:
        dist.all_reduce(torch.ones(4, 3).to(KIND))
        dist.all_reduce(torch.ones(2))
        return collops.torch.last_calls()

    want = ["1 all_reduce [4, 3] float32", "2 all_reduce [2] float32"]
    assert run_device_group(work, 2) == [want] * 2
