"""all_to_allv, gatherv, scatterv and reduce: kinds of tensors, one rank, what is not read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

X = np.arange(12, dtype=np.float32).reshape(6, 2)
SENDS = [1, 2, 3]


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")

    def work(rank: int) -> list[Any]:
        with collops.init() as comm:
            x = torch.arange(6).reshape(3, 2).to(torch.bfloat16) + 10 * rank
            out = torch.empty((3, 2), dtype=torch.bfloat16)
            sizes = [2, 1] if rank == 0 else [1, 2]
            assert comm.all_to_allv(x, sizes, sizes, out) is out
            parts = comm.scatterv(x if rank == 0 else None, [1, 2])
            rows = comm.gatherv(x, root=1)
            total = comm.reduce(x.float(), "max")
            results = [out, parts, rows, total]
            assert all(r is None or torch.is_tensor(r) for r in results)
            assert parts.dtype is torch.bfloat16
            return [None if r is None else r.float().tolist() for r in results]

    first, second = run_ranks(work, 2)
    assert first[0] == [[0, 1], [2, 3], [10, 11]]
    assert second[0] == [[4, 5], [12, 13], [14, 15]]
    assert (first[1], second[1]) == ([[0, 1]], [[2, 3], [4, 5]])
    assert (first[2], second[3]) == (None, None)
    assert second[2] == [[0, 1], [2, 3], [4, 5], [10, 11], [12, 13], [14, 15]]
    assert first[3] == [[10, 11], [12, 13], [14, 15]]


POINT = np.dtype([("where", "<f4", (2,)), ("name", "S5")])


@pytest.mark.parametrize(
    "dtype", [POINT, np.dtype("M8[us]"), np.dtype("U2"), np.dtype("c16")], ids=str
)
def test_elements_that_travel_as_bytes(dtype: Any) -> None:
    def rows(rank: int, count: int) -> Any:
        numbers = np.arange(count * 2 * dtype.itemsize, dtype=np.uint8) % 60 + rank
        if dtype.kind == "U":
            return (numbers[: count * 2] + 65).astype("U2").reshape(count, 2)
        return numbers.view(dtype).reshape(count, 2)

    def work(rank: int) -> tuple[bytes, Any, bytes]:
        with collops.init() as comm:
            swapped = comm.all_to_allv(rows(rank, 3), [2, 1])
            gathered = comm.gatherv(rows(rank, rank + 1))
            part = comm.scatterv(rows(5, 4) if rank == 1 else None, [3, 1], root=1)
            assert {a.dtype for a in (swapped, part)} == {dtype}
            return (
                swapped.tobytes(),
                None if gathered is None else gathered.tobytes(),
                part.tobytes(),
            )

    first, second = run_ranks(work, 2)
    assert first[0] == rows(0, 3)[:2].tobytes() + rows(1, 3)[:2].tobytes()
    assert second[0] == rows(0, 3)[2:].tobytes() + rows(1, 3)[2:].tobytes()
    assert (first[1], second[1]) == (rows(0, 1).tobytes() + rows(1, 2).tobytes(), None)
    assert first[2] + second[2] == rows(5, 4).tobytes()


def test_one_rank() -> None:
    def work(rank: int) -> list[Any]:
        with collops.init() as comm:
            empty = comm.all_to_allv(X[:0], [0])
            assert empty.shape == (0, 2)
            results = [comm.all_to_allv(X, [6]), comm.gatherv(X), comm.scatterv(X, [6])]
            return [comm.reduce(np.float64([3]), "avg").tolist(), *(r.tolist() for r in results)]

    assert run_ranks(work, 1) == [[[3.0], *[X.tolist()] * 3]]


def test_scatterv_ignores_x_of_other_ranks() -> None:
    def work(rank: int) -> Any:
        with collops.init() as comm:
            given = [X, "anything", np.zeros(9)][rank]
            return comm.scatterv(given, SENDS).tolist()

    assert run_ranks(work, 3) == [X[:1].tolist(), X[1:3].tolist(), X[3:].tolist()]


def test_reduce_into_memory_of_the_root() -> None:
    def work(rank: int) -> tuple[Any, ...]:
        with collops.init() as comm:
            x, out = X + rank, np.full_like(X, -1)
            kept = X + rank
            first = comm.reduce(x, root=1, out=out)
            second = comm.reduce(kept, "max", 2, out=kept)
            own = (first is out, second is kept) if rank else (first, second)
            return own, out.tolist(), kept.tolist()

    total, largest, blank = (3 * X + 3).tolist(), (X + 2).tolist(), np.full_like(X, -1).tolist()
    assert run_ranks(work, 3) == [
        ((None, None), blank, X.tolist()),
        ((True, False), total, (X + 1).tolist()),
        ((False, True), blank, largest),
    ]


def test_no_array_is_copied_but_once() -> None:
    """The core counts what it copies: every rank takes what it receives, and nothing else."""
    from collops.core import core

    def work(rank: int) -> int:
        comm = collops.init()
        x = comm.empty((3, 100_000), np.float32)
        x[...] = rank
        out = comm.empty((3, 100_000), np.float32)
        comm.all_to_allv(x, [1, 1, 1], [1, 1, 1], out)
        before = core().copied_bytes()
        comm.all_to_allv(x, [1, 1, 1], [1, 1, 1], out)
        return int(core().copied_bytes() - before)

    assert run_ranks(work, 3) == [1_200_000] * 3
