"""Programs of calls in which rows go from rank to rank, on one communicator, against golden.

Tables of any rows, slices long and short beside each other, at both levels, from plain memory and
from windows; a reduction in between, whose memory and signals they meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from collops.golden.data import fill
from collops.golden.data.exchange import exchange
from collops.golden.operators.all_to_all_v import all_to_all_v_rows
from collops.golden.operators.rooted_collectives import gatherv, reduce, scatterv
from hypothesis import event, given, settings
from hypothesis import strategies as st

import collops
from collops.testing import run_ranks

# Around what a cell, a chunk and a stage hold, for elements of 1 to 8 bytes.
ROWS = st.one_of(st.just(0), st.integers(0, 9), st.sampled_from([64, 65, 1000, 70_001]))
METHODS = ("all_to_allv", "AllToAllV", "gatherv", "scatterv", "reduce")


class Call(NamedTuple):
    """One call: who has how many rows for whom; of calls with a root the root's line counts."""

    method: str
    dtype: str
    width: int
    table: list[list[int]]
    root: int
    window: bool
    told: bool  # both lists, or one of them


@st.composite
def programs(draw: st.DrawFn) -> tuple[int, bool, list[Call]]:
    ranks = draw(st.integers(1, 4))
    lines = st.lists(ROWS, min_size=ranks, max_size=ranks)
    call = st.builds(
        Call,
        method=st.sampled_from(METHODS if ranks > 1 else [m for m in METHODS if m != "AllToAllV"]),
        dtype=st.sampled_from(["int8", "int16", "float32", "int64"]),
        width=st.sampled_from([1, 1, 3, 16]),
        table=st.lists(lines, min_size=ranks, max_size=ranks),
        root=st.integers(0, ranks - 1),
        window=st.booleans(),
        told=st.booleans(),
    )
    return ranks, draw(st.booleans()), draw(st.lists(call, min_size=1, max_size=6))


def can_be_stated(call: Call) -> bool:
    """ATB has no rank that receives nothing."""
    return call.method != "AllToAllV" or all(map(sum, zip(*call.table, strict=True)))


def rows_of(call: Call, rank: int) -> int:
    line = call.table[call.root]
    rows = {"gatherv": line[rank], "scatterv": sum(line), "reduce": line[0]}
    return rows.get(call.method, sum(call.table[rank]))


def data(call: Call, rank: int) -> Any:
    return fill((rows_of(call, rank), call.width), call.dtype, rank, 0, "index")


def run(comm: collops.Communicator, call: Call, x: Any) -> Any:
    line = call.table[call.root]
    if call.method == "gatherv":
        return comm.gatherv(x, line if call.told else None, call.root)
    if call.method == "scatterv":
        return comm.scatterv(x if comm.rank == call.root else None, line, call.root)
    if call.method == "reduce":
        return comm.reduce(x, "sum", call.root)
    rows = exchange(call.table)
    if call.method == "all_to_allv":
        lists = rows.send_counts[comm.rank], rows.recv_counts[comm.rank]
        return comm.all_to_allv(x, *lists[: 2 if call.told else 1])
    lists = exchange([[n * call.width for n in line] for line in call.table]).lists(comm.rank)
    names = {"sendCounts": "send_counts", "recvCounts": "recv_counts"}
    fields: dict[str, Any] = {names.get(name, name): list_ for name, list_ in lists.items()}
    param = collops.AllToAllVParam(rank=comm.rank, hccl_comm=comm, backend="shm", **fields)
    return collops.Operation(param).forward([x])[0].reshape(-1, call.width)


def run_program(rank: int, program: Sequence[Call]) -> list[Any]:
    comm = collops.init()
    results = []
    for call in program:
        given = data(call, rank)
        x = comm.empty(given.shape, given.dtype) if call.window else np.empty_like(given)
        x[...] = given
        got = run(comm, call, x)
        assert x.tobytes() == given.tobytes(), "x was changed"
        x[...] = 77  # the call has ended: nobody reads this any more
        results.append(None if got is None else np.array(got))
    return results


def wanted(call: Call, ranks: int) -> list[Any]:
    xs = [data(call, rank) for rank in range(ranks)]
    if call.method == "scatterv":
        return list(scatterv(xs[call.root], call.table[call.root]))
    if call.method in ("gatherv", "reduce"):
        whole = gatherv(xs) if call.method == "gatherv" else reduce(xs, "sum", call.dtype)
        return [whole if rank == call.root else None for rank in range(ranks)]
    return list(all_to_all_v_rows(xs, call.table))


@given(programs())
@settings()
def test_programs_of_exchanges(program: tuple[int, bool, list[Call]]) -> None:
    ranks, threads, drawn = program
    calls = [call for call in drawn if can_be_stated(call)]
    results = run_ranks(run_program, ranks, calls, threads=threads)
    for at, call in enumerate(calls):
        event(f"{call.method} {'window' if call.window else 'plain'}")
        for rank, want in enumerate(wanted(call, ranks)):
            got = results[rank][at]
            assert (got is None) == (want is None), (at, rank, call)
            if want is not None:
                assert got.dtype == want.dtype and got.shape == want.shape, (at, rank, call)
                assert got.tobytes() == want.tobytes(), (at, rank, call)
