"""What the even collectives take and give back: shapes, element types, kinds of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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


def work_on_types(rank: int) -> list[Any]:
    comm = collops.init()
    pairs = np.array([(rank, 0.5)], [("a", "i4"), ("b", "f8")])
    dates = np.array(["2024-01-0" + str(rank + 1)], "datetime64[D]")
    z = np.array([1j * rank])
    return [
        comm.all_gather(pairs)["a"].tolist(),
        comm.broadcast(pairs, root=1)["a"].tolist(),
        str(comm.all_gather(dates)[1]),
        comm.all_gather(z).tolist(),
        str(comm.broadcast(np.array([f"r{rank}"]), root=1)[0]),
    ]


def test_any_element_type_travels() -> None:
    want = [[0, 1], [1], "2024-01-02", [0j, 1j], "r1"]
    assert run_ranks(work_on_types, 2) == [want, want]


def test_one_rank() -> None:
    def work(rank: int) -> list[Any]:
        comm = collops.init()
        x = np.array([[1.5, 2], [3, 4]])
        return [
            comm.all_gather(x).tolist(),
            comm.reduce_scatter(x, "avg").tolist(),
            comm.all_reduce(x, "prod").tolist(),
            comm.broadcast(x).tolist(),
        ]

    assert run_ranks(work, 1) == [[[[1.5, 2.0], [3.0, 4.0]]] * 4]


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


class Capsule:
    """An array that says only __dlpack__."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_dlpack_is_read() -> None:
    def work(rank: int) -> list[Any]:
        comm = collops.init()
        x = Capsule(np.array([rank, 4.0]))
        return [
            comm.all_gather(x).tolist(),
            comm.reduce_scatter(x).tolist(),
            comm.all_reduce(x).tolist(),
        ]

    want = [[0.0, 4.0, 1.0, 4.0], [1.0], [1.0, 8.0]]
    assert run_ranks(work, 2) == [want, [*want[:1], [8.0], *want[2:]]]


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")

    def work(rank: int) -> list[Any]:
        comm = collops.init()
        x = torch.tensor([[1.0 + rank, 2.0], [3.0, 4.0]], dtype=torch.bfloat16)
        loss = torch.tensor(0.5 + rank)
        results = [
            comm.all_gather(x),
            comm.reduce_scatter(x, "max"),
            comm.all_reduce(x, out=x),
            comm.all_reduce(loss, "avg"),
            comm.broadcast(loss, root=1),
        ]
        assert all(isinstance(result, torch.Tensor) for result in results)
        assert results[2] is x
        assert results[4] is loss
        param = collops.BroadcastParam(rank=rank, hccl_comm=comm, backend="shm", rank_root=1)
        told = torch.full((2,), rank)
        assert collops.Operation(param).forward([told]) == []
        return [result.tolist() for result in (*results, told)]

    ranks = run_ranks(work, 2)
    assert ranks[0] == [
        [[1.0, 2.0], [3.0, 4.0], [2.0, 2.0], [3.0, 4.0]],
        [[2.0, 2.0]],
        [[3.0, 4.0], [6.0, 8.0]],
        1.0,
        1.5,
        [1, 1],
    ]
    assert ranks[1] == [ranks[0][0], [[3.0, 4.0]], *ranks[0][2:]]


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
