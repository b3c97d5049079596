"""torch.ops.collops and its gradients on NPU tensors, against the same on CPU tensors."""

from __future__ import annotations

import functools
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from groups import default_group
from npu_groups import run_npu_group
from operator_rows import Row, rows_for

import collops
import collops.torch as ct
from collops.testing import run_ranks

SIZES = (2, 3, 4)
_NO_GRADIENT = ("max", "min", "prod")


def name_of(row: Row) -> str:
    return f"{row.operator} {row.title}"


def on(device: str, args: list[Any]) -> list[Any]:
    """The arguments, their tensors on a device as leaves that want gradients."""
    return [
        x.detach().to(device).requires_grad_(x.is_floating_point())
        if isinstance(x, torch.Tensor)
        else x
        for x in args
    ]


def outcome(row: Row, rank: int, size: int, device: str) -> Any:
    """The result, the result in memory of the caller, and the gradients."""
    given, group = row.args(rank, size), default_group().group_name
    operator = getattr(torch.ops.collops, row.operator)
    try:
        args = on(device, given)
        result = operator(*args, group)
        out = torch.empty_like(result)
        with torch.no_grad():
            operator.out(*on(device, given), group, out=out) if row.known else out.copy_(result)
        found = [result.tolist(), out.tolist()]
        if not any(word in given for word in _NO_GRADIENT if isinstance(word, str)):
            factor = (torch.arange(result.numel()) % 3 - 1.0).view(result.shape).to(device)
            (result * factor).sum().backward()
            found += [x.grad.tolist() for x in args if isinstance(x, torch.Tensor)]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return found


def outcomes(rank: int, size: int) -> dict[str, tuple[Any, Any]]:
    devices = "cpu", f"npu:{rank}"
    found = {}
    for row in rows_for(size):
        on_cpu, on_npu = (outcome(row, rank, size, device) for device in devices)
        found[name_of(row)] = (on_cpu, on_npu)
    return found


@functools.cache
def outcomes_of_ranks(size: int) -> list[dict[str, tuple[Any, Any]]]:
    return run_npu_group(outcomes, size, size)


@pytest.mark.parametrize(
    ("name", "size"), [(name_of(row), size) for size in SIZES for row in rows_for(size)]
)
def test_an_operator(name: str, size: int) -> None:
    for rank, found in enumerate(outcomes_of_ranks(size)):
        on_cpu, on_npu = found[name]
        assert not isinstance(on_cpu, str), on_cpu
        assert on_npu == on_cpu, f"rank {rank}"


def test_a_communicator_of_the_backend_hccl() -> None:
    """Without a group of torch.distributed."""

    def work(rank: int) -> tuple[list[float], list[float]]:
        torch.npu.set_device(rank)
        with collops.init(backend="hccl") as comm:
            x = torch.full((rank + 1,), float(rank)).npu().requires_grad_()
            every = ct.all_gatherv(x, group=comm)
            (every * (rank + 1)).sum().backward()
            assert x.grad is not None
            return every.tolist(), x.grad.tolist()

    assert run_ranks(work, 2) == [([0, 1, 1], [3]), ([0, 1, 1], [3, 3])]


def test_an_operator_comes_after_the_calls_of_its_group(npu: Any) -> None:
    """HCCL's simulation keeps its own calls in order; so other work is looked at."""

    def work(rank: int) -> tuple[bool, list[float]]:
        group, x, y = default_group(), torch.ones(2).npu(), torch.ones(2).npu()
        dist.all_reduce(x, async_op=True).wait()
        stream = group._npu_calls([x]).streams.own
        torch.npu.synchronize()
        with npu.held(stream):
            call = dist.all_reduce(x, async_op=True)
            group.communicator_for(x.device)
            y.add_(1)
            time.sleep(0.1)
            ended = bool(torch.npu.current_stream().query())
        call.wait()
        return ended, [*x.tolist(), *ct.all_reduce(y).tolist()]

    assert run_npu_group(work, 2) == [(False, [4.0, 4.0, 4.0, 4.0])] * 2
