"""torchcomms' and torch_npu's uneven calls: their counts, element types and reductions."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import collops  # noqa: E402
from collops.torch.uneven import (  # noqa: E402
    UnevenComm,
    all_gather_into_tensor_uneven,
    reduce_scatter_tensor_uneven,
)
from tests.torch.groups import run_group  # noqa: E402

# Of torchcomms' tests: rank r has c + r elements.
COUNTS = (0, 4, 1024, 1 << 20)
DTYPES = (torch.float32, torch.int32, torch.int8)
REDUCTIONS = (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.AVG)


def block(rank: int, peer: int, count: int, dtype: Any) -> Any:
    """What a rank has for another one; sums of two ranks fit int8."""
    return ((torch.arange(count) * 7 + 5 * rank + 11 * peer) % 41 - 20).to(dtype)


def reduced(op: Any, peer: int, count: int, dtype: Any, size: int) -> Any:
    blocks = torch.stack([block(r, peer, count, dtype) for r in range(size)])
    if op == dist.ReduceOp.MAX:
        return blocks.amax(0)
    total = blocks.sum(0, dtype=torch.float64)
    return (total / size if op == dist.ReduceOp.AVG else total).to(dtype)


@pytest.mark.parametrize("backend", ["collops", "gloo"])
def test_torchcomms(backend: str) -> None:
    size = 2

    def work(rank: int) -> None:
        comm = UnevenComm()
        assert (comm.get_rank(), comm.get_size()) == (rank, size)
        for count in COUNTS:
            for dtype in DTYPES:
                for async_op in (False, True):
                    gather(comm, rank, count, dtype, async_op)
                    for op in REDUCTIONS:
                        reduce(comm, rank, count, dtype, op, async_op)

    def gather(comm: Any, rank: int, count: int, dtype: Any, async_op: bool) -> None:
        outs = [torch.full((count + r,), -1).to(dtype) for r in range(size)]
        work = comm.all_gather_v(outs, block(rank, 0, count + rank, dtype), async_op)
        work.wait()
        for r, out in enumerate(outs):
            assert torch.equal(out, block(r, 0, count + r, dtype))

    def reduce(comm: Any, rank: int, count: int, dtype: Any, op: Any, async_op: bool) -> None:
        out = torch.full((count + rank,), -1).to(dtype)
        parts = [block(rank, r, count + r, dtype) for r in range(size)]
        comm.reduce_scatter_v(out, parts, op, async_op).wait()
        assert torch.equal(out, reduced(op, rank, count + rank, dtype, size))

    assert run_group(work, size, backend=backend) == [None] * size


@pytest.mark.parametrize("backend", ["collops", "gloo"])
def test_torch_npu(backend: str) -> None:
    def work(rank: int) -> list[Any]:
        sizes = [2, 0, 3]
        x = torch.arange(sizes[rank] * 2).view(-1, 2) + 10 * rank
        out = torch.zeros(5, 2, dtype=torch.int64)
        ended = [all_gather_into_tensor_uneven(out, x, sizes)]
        whole = torch.arange(10.0).view(5, 2) * (rank + 1)
        own = torch.empty(sizes[rank], 2)
        ended.append(reduce_scatter_tensor_uneven(own, whole, sizes))
        assert torch.equal(own, (torch.arange(10.0).view(5, 2) * 6).split(sizes)[rank])
        later = torch.zeros_like(out)
        all_gather_into_tensor_uneven(later, x, sizes, async_op=True).wait()
        assert torch.equal(later, out)
        even = torch.empty(1)
        reduce_scatter_tensor_uneven(even, torch.arange(3.0), op=dist.ReduceOp.MAX)
        with pytest.raises(collops.Error, match="output_split_sizes must be 3 numbers"):
            all_gather_into_tensor_uneven(out, x, [2, 3])
        with pytest.raises(collops.Error, match=r"the sum 5, got None"):
            reduce_scatter_tensor_uneven(even, whole)
        return [ended, out[:, 0].tolist(), even.item()]

    results = run_group(work, 3, backend=backend)
    assert results == [[[None, None], [0, 2, 20, 22, 24], float(r)] for r in range(3)]
