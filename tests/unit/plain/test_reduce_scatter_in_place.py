"""reduce_scatter and reduce_scatterv whose result is this rank's own block of x."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from collops.golden.data import fill
from collops.golden.data.dtypes import REDUCE_DTYPES, storage
from collops.golden.data.reduction import REDUCE_OPS, has_reduction

import collops
from collops.testing import run_ranks
from tests.conformance.runs import as_real

# Bytes of a rank's block: with the first signal, in several chunks, and of uneven blocks.
SMALL, LARGE = 24, 300_000
EVERY_OP = [(dtype, op) for dtype in REDUCE_DTYPES for op in REDUCE_OPS if has_reduction(op, dtype)]
FEW_OPS = EVERY_OP[::7]
OVERLAP = "out overlaps x in memory: .* or pass this rank's own block of x as out"


def block_sizes(ranks: int, rows: int) -> dict[str, list[int] | None]:
    """Rows of each rank's block, by name; None: reduce_scatter."""
    return {
        "even": None,
        "uneven": [rows * (rank % 3) + rank for rank in range(ranks)],
        "one has all": [rows if rank == ranks - 1 else 0 for rank in range(ranks)],
    }


def check_call(comm: Any, x: np.ndarray, sizes: list[int] | None, op: str) -> None:
    """Compares the call in place with the call out of place, and the rest of x with what it was."""
    rows = [len(x) // comm.size] * comm.size if sizes is None else sizes
    begin = sum(rows[: comm.rank])
    end = begin + rows[comm.rank]
    before = x.copy()

    def call(**out: Any) -> Any:
        if sizes is None:
            return comm.reduce_scatter(x, op, **out)
        return comm.reduce_scatterv(x, sizes, op=op, **out)

    want = call()
    np.testing.assert_array_equal(x.view(np.uint8), before.view(np.uint8))
    own = x[begin:end]
    assert call(out=own) is own
    assert own.tobytes() == want.tobytes(), (x.dtype, op, sizes)
    before[begin:end] = want
    assert x.tobytes() == before.tobytes(), (x.dtype, op, sizes, "another block has changed")


def check_all(comm: Any, ops: list[tuple[str, str]], block_bytes: int, window: bool) -> None:
    for dtype, op in ops:
        block_rows = block_bytes // (2 * storage(dtype).itemsize) or 1
        for sizes in block_sizes(comm.size, block_rows).values():
            rows = block_rows * comm.size if sizes is None else sum(sizes)
            x = as_real(fill((rows, 2), dtype, comm.rank, kind="random"), dtype).copy()
            if window:
                memory = comm.empty(x.shape, x.dtype)
                memory[...] = x
                x = memory
            check_call(comm, x, sizes, op)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("window", [False, True], ids=["array", "window"])
def test_the_bits_are_those_of_a_call_out_of_place(ranks: int, window: bool) -> None:
    def work(rank: int) -> None:
        with collops.init() as comm:
            check_all(comm, EVERY_OP, SMALL, window)
            check_all(comm, FEW_OPS, LARGE, window)

    run_ranks(work, ranks)


def test_started_and_of_columns() -> None:
    def work(rank: int) -> list[Any]:
        with collops.init() as comm:
            x = np.arange(8.0).reshape(1, 8) + 10 * rank
            own = x[:, 3 * rank :][:, : 3 + 2 * rank]
            comm.reduce_scatterv(x, [3, 5], dim=1, out=own)
            y = np.arange(4) + 10 * rank
            started = comm.start("reduce_scatter", y, out=y[2 * rank :][:2])
            started.wait()
            return [x.tolist(), y.tolist()]

    first, second = run_ranks(work, 2)
    assert first == [[[10, 12, 14, 3, 4, 5, 6, 7]], [10, 12, 2, 3]]
    assert second == [[[10, 11, 12, 16, 18, 20, 22, 24]], [10, 11, 14, 16]]


@pytest.mark.parametrize("name", ["reduce_scatter", "reduce_scatterv"])
def test_other_overlaps_are_refused(name: str) -> None:
    def work(rank: int) -> None:
        with collops.init() as comm:
            x = np.arange(12.0).reshape(6, 2)
            for out in (x[3 * (1 - rank) :][:3], x[1:4], x[2:5]):
                # If both ranks refuse, each hears of its own refusal.
                with pytest.raises(collops.ArgumentError, match=OVERLAP):
                    getattr(comm, name)(x, out=out)
            assert (x == np.arange(12.0).reshape(6, 2)).all()
            assert (comm.reduce_scatter(x) == 2 * x[3 * rank :][:3]).all()

    run_ranks(work, 2)
