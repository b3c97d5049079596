"""Collectives of backend nccl, with golden's bits: sums are in rank order, not in NCCL's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_ranks import UNEVEN, begins, numbers, reduced, run, scatter, scattered

import collops
from collops.testing import run_ranks


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_blocks_are_gathered(gpu: Any, ranks: int) -> None:
    sizes = UNEVEN[ranks]

    def work(rank: int) -> Any:
        gpu.choose(rank)
        op = collops.Operation(
            collops.AllGatherVParam(rank=rank, rank_size=ranks, backend="nccl", comm_domain="g")
        )
        counts, displs = np.array(sizes, np.int64), begins(sizes) + 1
        found = []
        for dtype in ("float16", "int64", "float32"):
            x = gpu.tensor(numbers(rank, sizes[rank], dtype))
            y = np.empty(sum(sizes) + 2, np.float16)
            out = gpu.poisoned((sum(sizes) + 2,), x)
            inputs = [x, counts[rank : rank + 1], counts, displs, y]
            found.append(run(op, gpu, inputs, out))
        return found

    for found in run_ranks(work, ranks):
        for dtype, got in zip(("float16", "int64", "float32"), found, strict=True):
            blocks = [numbers(r, size, dtype) for r, size in enumerate(sizes)]
            zero = np.zeros(1, dtype)
            np.testing.assert_array_equal(got, np.concatenate([zero, *blocks, zero]))


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_slices_are_reduced_in_rank_order(gpu: Any, ranks: int, op: str) -> None:
    sizes = UNEVEN[ranks]
    dtypes = ("float32", "float16", "float64", "int16", "uint8", "int32")

    def work(rank: int) -> Any:
        gpu.choose(rank)
        operation = collops.Operation(
            collops.ReduceScatterVParam(
                rank=rank, rank_size=ranks, backend="nccl", reduce_type=op, comm_domain="r"
            )
        )
        return [scatter(operation, gpu, rank, sizes, dtype) for dtype in dtypes]

    for rank, found in enumerate(run_ranks(work, ranks)):
        for dtype, got in zip(dtypes, found, strict=True):
            np.testing.assert_array_equal(got, scattered(rank, sizes, dtype, op), err_msg=dtype)


def test_even_slices_and_a_longer_output(gpu: Any) -> None:
    sizes = [4, 4]

    def work(rank: int) -> Any:
        gpu.choose(rank)
        operation = collops.Operation(
            collops.ReduceScatterVParam(rank=rank, rank_size=2, backend="nccl", comm_domain="e")
        )
        return [scatter(operation, gpu, rank, sizes, dtype, 6) for dtype in ("int32", "float32")]

    for rank, found in enumerate(run_ranks(work, 2)):
        for dtype, got in zip(("int32", "float32"), found, strict=True):
            rest = np.zeros(2, dtype)
            expected = np.concatenate([scattered(rank, sizes, dtype, "sum"), rest])
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("ranks", [2, 3])
def test_all_ranks_get_the_sum(gpu: Any, ranks: int) -> None:
    cases = [("float32", 1000), ("float16", 7), ("int32", 5), ("float32", 1)]

    def work(rank: int) -> Any:
        gpu.choose(rank)
        op = collops.Operation(
            collops.AllReduceParam(rank=rank, rank_size=ranks, backend="nccl", comm_domain="a")
        )
        found = []
        for dtype, count in cases:
            x = gpu.tensor(numbers(rank, count, dtype))
            found.append(run(op, gpu, [x], gpu.poisoned((count,), x)))
        return found

    for found in run_ranks(work, ranks):
        for (dtype, count), got in zip(cases, found, strict=True):
            parts = [numbers(r, count, dtype) for r in range(ranks)]
            np.testing.assert_array_equal(got, reduced(parts, "sum"))


def test_the_plain_level_fills_what_it_is_given(gpu: Any) -> None:
    def work(rank: int) -> Any:
        gpu.choose(rank)
        comm = collops.init(rank, 3, backend="nccl", comm_domain="plain")
        x = gpu.tensor(numbers(rank, rank + 1, "float32"))
        gathered, all_ = gpu.poisoned((6,), x), gpu.tensor(numbers(rank, 4, "int32"))
        comm.all_gatherv(x, [1, 2, 3], out=gathered)
        comm.broadcast(all_, root=2)
        sends = [(rank + to) % 2 for to in range(3)]
        receives = [(of + rank) % 2 for of in range(3)]
        parts = gpu.tensor(numbers(rank, sum(sends), "float64", 1))
        exchanged = gpu.poisoned((sum(receives),), parts)
        comm.all_to_allv(parts, sends, receives, out=exchanged)
        comm.barrier()
        return [gpu.array(found) for found in (gathered, all_, exchanged)]

    for rank, (gathered, all_, exchanged) in enumerate(run_ranks(work, 3)):
        blocks = [numbers(r, r + 1, "float32") for r in range(3)]
        np.testing.assert_array_equal(gathered, np.concatenate(blocks))
        np.testing.assert_array_equal(all_, numbers(2, 4, "int32"))
        expected = []
        for of in range(3):
            sends = [(of + to) % 2 for to in range(3)]
            parts = np.split(numbers(of, sum(sends), "float64", 1), np.cumsum(sends)[:-1])
            expected.append(parts[rank])
        np.testing.assert_array_equal(exchanged, np.concatenate(expected))


def test_messages_are_put_on_the_stream(gpu: Any) -> None:
    def work(rank: int) -> Any:
        gpu.choose(rank)
        comm = collops.init(rank, 2, backend="nccl", comm_domain="messages")
        x = gpu.tensor(numbers(rank, 5, "float32"))
        got, both = gpu.poisoned((5,), x), gpu.poisoned((5,), x)
        if rank == 0:
            comm.send(x, 1)
            comm.recv(got, 1)
        else:
            comm.recv(got, 0)
            comm.send(x, 0)
        comm.exchange([collops.SendTo(x, 1 - rank), collops.RecvFrom(both, 1 - rank)])
        return gpu.array(got), gpu.array(both)

    for rank, found in enumerate(run_ranks(work, 2)):
        for got in found:
            np.testing.assert_array_equal(got, numbers(1 - rank, 5, "float32"))


def test_a_group_is_split(gpu: Any) -> None:
    def work(rank: int) -> Any:
        gpu.choose(rank)
        comm = collops.init(rank, 4, backend="nccl", comm_domain="split")
        comm.barrier()
        part = comm.split(rank % 2, -rank)  # in reverse order
        x = gpu.tensor(np.array([rank], np.int32))
        out = gpu.poisoned((2,), x)
        part.all_gatherv(x, [1, 1], out=out)
        return part.rank, gpu.array(out).tolist()

    expected = [(1, [2, 0]), (1, [3, 1]), (0, [2, 0]), (0, [3, 1])]
    assert run_ranks(work, 4) == expected
