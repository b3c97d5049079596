"""torch.ops.collops and its gradients on tensors of devices, against the same on CPU tensors."""

from __future__ import annotations

import functools
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

import collops
import collops.torch as ct
from collops.testing import run_ranks
from tests.devices.torch.device_groups import (
    BACKENDS,
    KIND,
    choose,
    devices,
    held,
    run_device_group,
)
from tests.torch.groups import default_group
from tests.torch.operators.device_operators import names_of, outcomes


def _outcomes(rank: int, size: int) -> dict[str, tuple[Any, Any]]:
    return outcomes(rank, size, f"{KIND}:{rank}")


@functools.cache
def _outcomes_of_ranks(size: int) -> list[dict[str, tuple[Any, Any]]]:
    return run_device_group(_outcomes, size, size)


@pytest.mark.parametrize(("name", "size"), names_of(KIND))
def test_an_operator(name: str, size: int) -> None:
    for rank, found in enumerate(_outcomes_of_ranks(size)):
        on_cpu, on_device = found[name]
        assert not isinstance(on_cpu, str), on_cpu
        assert on_device == on_cpu, f"rank {rank}"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_communicator_without_a_group(backend: str) -> None:
    def work(rank: int) -> tuple[list[float], list[float]]:
        choose(rank)
        with collops.init(backend=backend) as comm:
            x = torch.full((rank + 1,), float(rank)).to(KIND).requires_grad_()
            every = ct.all_gatherv(x, group=comm)
            (every * (rank + 1)).sum().backward()
            assert x.grad is not None
            return every.tolist(), x.grad.tolist()

    assert run_ranks(work, 2) == [([0, 1, 1], [3]), ([0, 1, 1], [3, 3])]


def test_an_operator_comes_after_the_calls_of_its_group() -> None:
    """The simulations keep a communicator's own calls in order; so other work is looked at."""

    def work(rank: int) -> tuple[bool, list[float]]:
        group, x, y = default_group(), torch.ones(2).to(KIND), torch.ones(2).to(KIND)
        dist.all_reduce(x, async_op=True).wait()
        stream = group._device_calls([x]).streams.own
        devices.synchronize()
        with held(stream):
            call = dist.all_reduce(x, async_op=True)
            group.communicator_for(x.device)
            y.add_(1)
            time.sleep(0.1)
            ended = bool(devices.current_stream().query())
        call.wait()
        return ended, [*x.tolist(), *ct.all_reduce(y).tolist()]

    assert run_device_group(work, 2) == [(False, [4.0, 4.0, 4.0, 4.0])] * 2
