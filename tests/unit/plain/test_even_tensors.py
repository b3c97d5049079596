"""What the even collectives take and give back: shapes, element types, kinds of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

import collops
from collops.testing import run_ranks


def work_on_shapes(rank: int) -> list[Any]:
    comm = collops.init()
    many = np.full((2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3), rank, np.int16)  # 11 dims
    scalar = np.array(2.5 + rank)
    told = np.array(rank + 1, np.int8)
    return [
        comm.all_gather(many).shape,
        comm.reduce_scatter(many).ravel().tolist(),
        comm.all_reduce(many)[0].ravel().tolist(),
        comm.all_reduce(scalar).item(),
        comm.broadcast(told, root=1).item(),
        comm.all_gather(np.empty((0, 4))).shape,
        comm.reduce_scatter(np.empty((0, 4), np.float16)).shape,
        comm.all_reduce(np.empty((0, 4), np.int8), "max").shape,
        comm.broadcast(np.empty((0, 4))).shape,
        comm.all_gather(np.empty((3, 0))).shape,
    ]


def test_any_number_of_dims_and_rows() -> None:
    tail = [(0, 4), (0, 4), (0, 4), (0, 4), (6, 0)]
    want = [(4, *(1,) * 9, 3), [1, 1, 1], [1, 1, 1], 6.0, 2, *tail]
    assert run_ranks(work_on_shapes, 2) == [want, want]


def test_inputs_are_not_changed() -> None:
    def work(rank: int) -> bool:
        comm = collops.init()
        x = np.arange(6.0) + rank
        x.flags.writeable = False
        comm.all_gather(x)
        comm.reduce_scatter(x)
        comm.all_reduce(x)
        return bool((x == np.arange(6.0) + rank).all())

    assert run_ranks(work, 2) == [True, True]


def test_levels_meet() -> None:
    x = np.arange(12, dtype=np.float32).reshape(6, 2)

    def work(rank: int) -> Any:
        comm = collops.init()
        if rank:
            return comm.all_reduce(x).tolist()
        param = collops.AllReduceParam(rank=rank, hccl_comm=comm, backend="shm")
        return collops.Operation(param).forward([x])[0].tolist()

    assert run_ranks(work, 2) == [(x * 2).tolist()] * 2


def test_reductions_of_truth_values_and_complex_numbers() -> None:
    """In all calls that reduce; the blocks of reduce_scatterv differ."""
    truths = [
        np.array([True, True, False, False, True]),
        np.array([True, False, True, False, False]),
    ]
    numbers = [
        (np.arange(5) + 10 * r + 1j * (np.arange(5) - r)).astype(np.complex64) for r in (0, 1)
    ]
    cases = [
        *((truths, op, fold) for op, fold in [("max", np.logical_or), ("min", np.logical_and)]),
        *((truths, op, fold) for op, fold in [("bor", np.logical_or), ("bxor", np.logical_xor)]),
        (truths, "band", np.logical_and),
        (numbers, "sum", np.add),
        (numbers, "avg", lambda a, b: (a + b) / 2),
    ]

    def work(rank: int) -> list[bool]:
        found = []
        with collops.init() as comm:
            for xs, op, fold in cases:
                want, x = fold(*xs), xs[rank]
                part = want[:4] if rank == 0 else want[4:]
                found.append(np.array_equal(comm.all_reduce(x, op), want))
                found.append(np.array_equal(comm.reduce_scatterv(x, [4, 1], op=op), part))
                own = comm.reduce_scatter(x[1:], op)
                found.append(np.array_equal(own, want[1:].reshape(2, 2)[rank]))
                total = comm.reduce(x, op, root=1)
                found.append(np.array_equal(total, want) if rank == 1 else total is None)
        return found

    for found in run_ranks(work, 2):
        assert all(found), found
