"""all_to_allv, gatherv, scatterv and reduce on living ranks against golden, bit for bit: every
element type, ranks that have nothing, every root, kinds of memory, processes as well as threads.

One run_ranks per combination; the ranks live through all calls.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from collops.golden.cases import all_cases
from collops.golden.data import fill
from collops.golden.data.dtypes import DTYPES, differs, storage
from collops.golden.data.exchange import turned
from collops.golden.data.shares import SHARES, shares
from collops.golden.operators.all_to_all_v import all_to_all_v_rows
from collops.golden.operators.rooted_collectives import gatherv, reduce, scatterv
from once import inputs

import collops
from collops.testing import run_ranks

POISON = 0xA5


class Run(NamedTuple):
    """What one run of all calls varies."""

    ranks: int
    memory: str = "plain"
    threads: bool = False


RUNS = [
    Run(1, "window"),
    Run(2),
    Run(3, "window"),
    Run(3, "unaligned"),
    Run(7),
    Run(3, threads=True),
    Run(4, "window", threads=True),
]
each_run = pytest.mark.parametrize("run", RUNS, ids=lambda run: "-".join(map(str, run)))


class Rows(NamedTuple):
    """Rows of one type, and how many go from each rank to each."""

    dtype: str
    row: tuple[int, ...]
    table: tuple[tuple[int, ...], ...]


def row_calls(size: int) -> list[Rows]:
    """Every type, every share, rows of many shapes, long slices, and tables of many zeros."""
    line = shares("1:2:3:4", size, 3)
    calls = [Rows(dtype, (4,), turns(line)) for dtype in DTYPES]
    calls += [Rows("int16", (3,), turns(shares(pattern, size, 8))) for pattern in SHARES]
    for row in ((), (1,), (2, 1, 3), (1,) * 8):
        calls.append(Rows("float32", row, turns(line)))
    calls.append(Rows("float64", (37,), turns(shares("3:5", size, 5000 // size))))
    calls.append(Rows("int64", (2,), (tuple(shares("primes", size, 20000 // size)),) * size))
    calls.append(Rows("bfloat16", (5,), ((0,) * size,) * size))
    calls.append(Rows("bool", (3,), (tuple(shares("one_owner", size, 4)),) * size))
    ring = [[6 + q if r == (q + 1) % size else 0 for r in range(size)] for q in range(size)]
    calls.append(Rows("int32", (2,), tuple(map(tuple, ring))))
    calls.append(Rows("uint8", (9,), turned(turns(shares("primes", size, 50)))))
    return calls


def turns(line: Any) -> tuple[tuple[int, ...], ...]:
    """The line, one place further on every rank."""
    size = len(line)
    return tuple(tuple(line[(r - q) % size] for r in range(size)) for q in range(size))


def data(call: Rows, rank: int, rows: int) -> Any:
    return filled((rows, *call.row), call.dtype, rank)


@lru_cache(maxsize=512)
def filled(shape: tuple[int, ...], dtype: str, rank: int) -> Any:
    """What ranks that are forked afterwards need not compute again."""
    return fill(shape, dtype, rank, 0, "index")


def compute(ranks: int) -> None:
    """Before the ranks are forked: the x of every rank, and what roots scatter."""
    for number, call in enumerate(row_calls(ranks)):
        for rank, line in enumerate(call.table):
            data(call, rank, sum(line))
            data(call, rank, call.table[0][rank])
        data(call, number % ranks, sum(call.table[0]))


def place(comm: collops.Communicator, run: Run, array: Any, dtype: str) -> Any:
    """The same values in the run's kind of memory, of the type that golden writes as bits."""
    array = array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array
    if run.memory == "window":
        placed = comm.empty(array.shape, array.dtype)
    elif run.memory == "unaligned":
        raw = np.empty(array.nbytes + 1, np.uint8)[1:]
        placed = raw.view(array.dtype).reshape(array.shape)
    else:
        placed = np.empty_like(array)
    placed[...] = array
    return placed


def poisoned(comm: collops.Communicator, run: Run, shape: tuple[int, ...], dtype: str) -> Any:
    out = place(comm, run, np.empty(shape, storage(dtype)), dtype)
    out.reshape(-1).view(np.uint8)[...] = POISON
    return out


def plain(array: Any) -> Any:
    """What plain numpy can hold, so that it travels to the test."""
    return np.array(array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array)


def all_exchanges(rank: int, run: Run) -> list[Any]:
    comm = collops.init()
    results = []
    for call in row_calls(run.ranks):
        sends, receives = list(call.table[rank]), list(turned(call.table)[rank])
        x = place(comm, run, data(call, rank, sum(sends)), call.dtype)
        before = x.tobytes()
        out = poisoned(comm, run, (sum(receives), *call.row), call.dtype)
        assert comm.all_to_allv(x, sends, receives, out) is out
        again = comm.all_to_allv(x, np.array(sends))
        assert again.dtype == out.dtype and again.tobytes() == out.tobytes()
        assert x.tobytes() == before, "x was changed"
        results.append(plain(out))
    return results


@each_run
def test_all_to_allv(run: Run) -> None:
    compute(run.ranks)
    results = run_ranks(all_exchanges, run.ranks, run, threads=run.threads)
    for number, call in enumerate(row_calls(run.ranks)):
        xs = [data(call, rank, sum(line)) for rank, line in enumerate(call.table)]
        for rank, want in enumerate(all_to_all_v_rows(xs, call.table)):
            got = results[rank][number]
            assert got.shape == want.shape, (call, rank)
            assert not differs(got, want, call.dtype).any(), (call, rank)


def all_gathers_and_scatters(rank: int, run: Run) -> list[Any]:
    comm = collops.init()
    results = []
    for number, call in enumerate(row_calls(run.ranks)):
        root, sizes = number % comm.size, list(call.table[0])
        x = place(comm, run, data(call, rank, sizes[rank]), call.dtype)
        gathered = comm.gatherv(x, sizes, root)
        without = comm.gatherv(x, root=root)
        assert (gathered is None) == (without is None) == (rank != root)
        if gathered is not None:
            assert without.tobytes() == gathered.tobytes()
        whole = place(comm, run, data(call, root, sum(sizes)), call.dtype)
        part = comm.scatterv(whole if rank == root else None, sizes, root)
        assert part.dtype == x.dtype
        results.append((None if gathered is None else plain(gathered), plain(part)))
    return results


@each_run
def test_gatherv_and_scatterv(run: Run) -> None:
    compute(run.ranks)
    results = run_ranks(all_gathers_and_scatters, run.ranks, run, threads=run.threads)
    for number, call in enumerate(row_calls(run.ranks)):
        root, sizes = number % run.ranks, call.table[0]
        want = gatherv([data(call, rank, sizes[rank]) for rank in range(run.ranks)])
        got = results[root][number][0]
        assert got.shape == want.shape and not differs(got, want, call.dtype).any(), call
        parts = scatterv(data(call, root, sum(sizes)), sizes)
        for rank, part in enumerate(parts):
            got = results[rank][number][1]
            assert got.shape == part.shape and not differs(got, part, call.dtype).any(), call


def all_reductions(rank: int, run: Run) -> list[Any]:
    comm = collops.init()
    results = []
    for number, case in enumerate(all_cases("all_reduce", rank_sizes=(run.ranks,))):
        root = number % comm.size
        x = place(comm, run, inputs(case)[rank]["x"], case.dtype)
        got = comm.reduce(x, case.op, root)
        assert (got is None) == (rank != root)
        results.append(None if got is None else plain(got))
    return results


@each_run
def test_reduce(run: Run) -> None:
    cases = all_cases("all_reduce", rank_sizes=(run.ranks,))
    for case in cases:
        inputs(case)
    results = run_ranks(all_reductions, run.ranks, run, threads=run.threads)
    for number, case in enumerate(cases):
        want = reduce([own["x"] for own in inputs(case)], case.op, case.dtype)
        got = results[number % run.ranks][number]
        assert got.shape == want.shape and not differs(got, want, case.dtype).any(), case.id


def test_the_calls_cover_what_they_should() -> None:
    calls = row_calls(4)
    assert {call.dtype for call in calls} == set(DTYPES)
    assert any(not any(map(sum, call.table)) for call in calls)
    assert any(0 in map(sum, turned(call.table)) and any(map(sum, call.table)) for call in calls)
