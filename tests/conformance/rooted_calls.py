"""all_to_allv, gatherv, scatterv and reduce, which the plain level alone has: calls on rows of
every type, ranks that have nothing, every root.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from collops.golden.cases import Case, all_cases
from collops.golden.data import fill
from collops.golden.data.dtypes import DTYPES, storage
from collops.golden.data.exchange import turned
from collops.golden.data.shares import SHARES, shares
from collops.golden.operators import rooted_collectives
from collops.golden.operators.all_to_all_v import all_to_all_v_rows

import collops
from tests.conformance.once import inputs
from tests.conformance.operator_runs import Outputs
from tests.conformance.runs import Run, as_real


class Rows(NamedTuple):
    """Rows of one type, and how many go from each rank to each; a root's are those of rank 0."""

    dtype: str
    row: tuple[int, ...]
    table: tuple[tuple[int, ...], ...]
    root: int = 0

    @property
    def id(self) -> str:
        return f"rows of {self.row} {self.dtype} from root {self.root}: {self.table}"

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.table[0]

    def data(self, rank: int, rows: int) -> Any:
        return filled((rows, *self.row), self.dtype, rank)


@lru_cache(maxsize=512)
def filled(shape: tuple[int, ...], dtype: str, rank: int) -> Any:
    """Results computed before the fork, so that ranks need not compute them."""
    return fill(shape, dtype, rank, 0, "index")


def row_cases(run: Run) -> list[Rows]:
    """Every type, every share, rows of many shapes, long slices, and tables of many zeros."""
    size = run.ranks
    line = shares("1:2:3:4", size, 3)
    calls = [Rows(dtype, (4,), turns(line)) for dtype in DTYPES]
    calls += [Rows("int16", (3,), turns(shares(pattern, size, 8))) for pattern in SHARES]
    most_dims = 7 if run.on_device else 8  # of a row; a tensor on a GPU has at most 8
    for row in ((), (1,), (2, 1, 3), (1,) * most_dims):
        calls.append(Rows("float32", row, turns(line)))
    calls.append(Rows("float64", (37,), turns(shares("3:5", size, 5000 // size))))
    calls.append(Rows("int64", (2,), (tuple(shares("primes", size, 20000 // size)),) * size))
    calls.append(Rows("bfloat16", (5,), ((0,) * size,) * size))
    calls.append(Rows("bool", (3,), (tuple(shares("one_owner", size, 4)),) * size))
    ring = [[6 + q if r == (q + 1) % size else 0 for r in range(size)] for q in range(size)]
    calls.append(Rows("int32", (2,), tuple(map(tuple, ring))))
    calls.append(Rows("uint8", (9,), turned(turns(shares("primes", size, 50)))))
    return [call._replace(root=number % size) for number, call in enumerate(calls)]


def turns(line: Any) -> tuple[tuple[int, ...], ...]:
    """The line, one place further on every rank."""
    size = len(line)
    return tuple(tuple(line[(r - q) % size] for r in range(size)) for q in range(size))


def exchanged(call: Rows, run: Run) -> Outputs:
    xs = [call.data(rank, sum(line)) for rank, line in enumerate(call.table)]
    return [[out] for out in all_to_all_v_rows(xs, call.table)]


def all_to_allv(comm: collops.Communicator, call: Rows, run: Run) -> list[Any]:
    sends, receives = list(call.table[comm.rank]), list(turned(call.table)[comm.rank])
    x = run.place(comm, as_real(call.data(comm.rank, sum(sends)), call.dtype))
    before = run.values(x).tobytes()
    like = as_real(np.empty(0, storage(call.dtype)), call.dtype)
    out = run.poisoned(comm, (sum(receives), *call.row), like.dtype)
    run.enter()
    assert comm.all_to_allv(x, sends, receives, out) is out
    again, got = run.values(comm.all_to_allv(x, np.array(sends))), run.values(out)
    assert again.dtype == got.dtype and again.tobytes() == got.tobytes()
    assert run.values(x).tobytes() == before, "x was changed"
    return [got]


def gathered(call: Rows, run: Run) -> Outputs:
    whole = rooted_collectives.gatherv(
        [call.data(rank, rows) for rank, rows in enumerate(call.sizes)]
    )
    return [[whole] if rank == call.root else None for rank in range(run.ranks)]


def gatherv(comm: collops.Communicator, call: Rows, run: Run) -> list[Any] | None:
    x = run.place(comm, as_real(call.data(comm.rank, call.sizes[comm.rank]), call.dtype))
    run.enter()
    whole = comm.gatherv(x, list(call.sizes), call.root)
    without = comm.gatherv(x, root=call.root)
    assert (whole is None) == (without is None)
    if whole is None:
        return None
    got = run.values(whole)
    assert run.values(without).tobytes() == got.tobytes(), "without sizes the result differs"
    return [got]


def scattered(call: Rows, run: Run) -> Outputs:
    whole = call.data(call.root, sum(call.sizes))
    return [[part] for part in rooted_collectives.scatterv(whole, call.sizes)]


def scatterv(comm: collops.Communicator, call: Rows, run: Run) -> list[Any]:
    whole = run.place(comm, as_real(call.data(call.root, sum(call.sizes)), call.dtype))
    run.enter()
    part = comm.scatterv(whole if comm.rank == call.root else None, list(call.sizes), call.root)
    got = run.values(part)
    assert got.dtype == run.values(whole).dtype
    return [got]


@lru_cache
def reductions(run: Run) -> tuple[Case, ...]:
    """The cases of all_reduce, each with another root."""
    every = all_cases("all_reduce", rank_sizes=(run.ranks,))
    cases = [case for case in every if not case.quant_type]
    cases = [case for case in cases if run.reduces(case.dtype, case.op, evenly=True)]
    return tuple(replace(case, root=number % run.ranks) for number, case in enumerate(cases))


def reduced(case: Case, run: Run) -> Outputs:
    whole = rooted_collectives.reduce([own["x"] for own in inputs(case)], case.op, case.dtype)
    return [[whole] if rank == case.root else None for rank in range(run.ranks)]


def reduce(comm: collops.Communicator, case: Case, run: Run) -> list[Any] | None:
    x = run.place(comm, as_real(inputs(case)[comm.rank]["x"], case.dtype))
    run.enter()
    out = comm.reduce(x, case.op, case.root)
    return None if out is None else [run.values(out)]
