"""Programs of random calls on several ranks, compared with golden bit for bit.

An example is a group of ranks, processes or threads, and several calls in a row, so that one call's
memory and signals meet the next one's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import ml_dtypes
import numpy as np
from collops.golden.cases import ATB_REDUCE_OPS, REDUCE_OPS, Case, expected, inputs
from collops.golden.data.dtypes import DTYPES, differs
from collops.golden.data.reduction import has_reduction
from hypothesis import event, given
from hypothesis import strategies as st

import collops
from collops.testing import run_ranks

POISON = 0xA5
# Around what one slot (16 KiB) and one chunk of a stage (128 KiB) hold, for types of 1 to 8 bytes.
LARGE = (2047, 2048, 2049, 8192, 16_384, 16_385, 65_537, 131_101)
COUNTS = st.one_of(st.integers(0, 40), st.integers(0, 40), st.sampled_from(LARGE))
SIZES = st.integers(0, 9)
KINDS = ("index", "exact", "random", "cancel", "special")


@dataclass(frozen=True)
class Call:
    """One call: golden's case, and how the ranks make it.

    The plain level has `x_shape` per rank and cuts it along `dim`; the case is then that of the
    same numbers with their rows in front.
    """

    case: Case
    memory: str
    level: str
    dim: int = 0
    form: str = "whole"
    give_out: bool = True
    give_sizes: bool = True


memories = st.sampled_from(["plain", "window", "unaligned"])


def rows_of(count: int, row: Sequence[int]) -> int:
    return -(-count // math.prod(row))


@st.composite
def atb_gathers(draw: st.DrawFn, ranks: int) -> Call:
    counts = draw(st.lists(COUNTS, min_size=ranks, max_size=ranks).filter(any))
    row = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    gaps = draw(st.lists(st.integers(0, 9), min_size=ranks, max_size=ranks))
    displs, end = [0] * ranks, 0
    for rank in draw(st.permutations(range(ranks))):
        displs[rank] = end + gaps[rank]
        end = displs[rank] + counts[rank]
    tail = draw(st.integers(0, 2))
    case = Case(
        operator="all_gather_v",
        name="fuzz",
        rank_size=ranks,
        dtype=draw(st.sampled_from(DTYPES)),
        counts=tuple(counts),
        displs=tuple(displs),
        x_shapes=tuple((rows_of(c, row) + draw(st.integers(0, 1)), *row) for c in counts),
        rows=(rows_of(end, row) + tail,) * ranks,
        kind=draw(st.sampled_from(KINDS)),
        seed=draw(st.integers(0, 9)),
    )
    return Call(case, draw(memories), "atb")


@st.composite
def atb_reductions(draw: st.DrawFn, ranks: int) -> Call:
    shape = draw(st.integers(1, 40)), draw(st.one_of(st.integers(1, 30), st.just(2049)))
    numel = math.prod(shape)
    counts = draw(st.lists(st.integers(0, numel), min_size=ranks, max_size=ranks))
    displs = [draw(st.integers(0, numel - count)) for count in counts]
    tails = [draw(st.integers(0, 2)) for _ in counts]
    case = Case(
        operator="reduce_scatter_v",
        name="fuzz",
        rank_size=ranks,
        dtype=draw(st.sampled_from([dtype for dtype in DTYPES if dtype != "bool"])),
        counts=tuple(counts),
        displs=tuple(displs),
        x_shapes=(shape,) * ranks,
        rows=tuple(rows_of(c, shape[1:]) + tail for c, tail in zip(counts, tails, strict=True)),
        op=draw(st.sampled_from(ATB_REDUCE_OPS)),
        kind=draw(st.sampled_from(KINDS)),
        seed=draw(st.integers(0, 9)),
    )
    return Call(case, draw(memories), "atb")


@st.composite
def plain_calls(draw: st.DrawFn, ranks: int) -> Call:
    gathers = draw(st.booleans())
    others = tuple(draw(st.lists(st.sampled_from([2, 3, 1, 4, 0]), max_size=3)))
    sizes = draw(st.lists(SIZES, min_size=ranks, max_size=ranks))
    if len(others) < 2 and draw(st.booleans()):
        sizes[draw(st.integers(0, ranks - 1))] = draw(st.sampled_from(LARGE))
    dtypes = [d for d in DTYPES if gathers or d != "bool"]
    dtype = draw(st.sampled_from(dtypes))
    op = (
        "" if gathers else draw(st.sampled_from([o for o in REDUCE_OPS if has_reduction(o, dtype)]))
    )
    width = math.prod(others)
    counts = [size * width for size in sizes]
    case = Case(
        operator="all_gather_v" if gathers else "reduce_scatter_v",
        name="fuzz",
        rank_size=ranks,
        dtype=dtype,
        counts=tuple(counts),
        displs=tuple([0, *accumulate(counts)][:-1]),
        x_shapes=tuple((size, *others) for size in sizes)
        if gathers
        else ((sum(sizes), *others),) * ranks,
        rows=(sum(sizes),) * ranks if gathers else tuple(sizes),
        op=op,
        kind=draw(st.sampled_from(KINDS)),
        seed=draw(st.integers(0, 9)),
    )
    return Call(
        case,
        draw(memories),
        "plain",
        dim=draw(st.integers(-len(others) - 1, len(others))),
        form=draw(st.sampled_from(["whole", "whole", "list", "strided"])),
        give_out=draw(st.booleans()),
        give_sizes=draw(st.booleans()),
    )


@st.composite
def programs(draw: st.DrawFn, kinds: Sequence[str]) -> tuple[int, bool, list[Call]]:
    """Number of ranks, whether they are threads, and calls of these kinds."""
    least = 1 if list(kinds) == ["plain"] else 2  # a struct needs two ranks
    ranks = draw(st.sampled_from([size for size in (2, 3, 1, 4, 7) if size >= least]))
    made = {"plain": plain_calls, "gather": atb_gathers, "reduce": atb_reductions}
    calls = st.one_of([made[kind](ranks) for kind in kinds])
    return ranks, draw(st.booleans()), draw(st.lists(calls, min_size=4, max_size=12))


def place(comm: collops.Communicator, memory: str, array: Any) -> Any:
    """The same values in another kind of memory."""
    if memory == "window":
        placed = comm.empty(array.shape, array.dtype)
    elif memory == "unaligned":
        raw = np.empty(array.nbytes + 1, np.uint8)[1:]
        placed = raw.view(array.dtype).reshape(array.shape)
    else:
        placed = np.empty(array.shape, array.dtype)
    placed[...] = array
    return placed


def poisoned(comm: collops.Communicator, memory: str, shape: Any, dtype: Any) -> Any:
    out = place(comm, memory, np.empty(shape, dtype))
    out.reshape(-1).view(np.uint8)[:] = POISON
    return out


def input_of(call: Call, rank: int) -> Any:
    x = inputs(call.case)[rank]["x"]
    return x.view(ml_dtypes.bfloat16) if call.case.dtype == "bfloat16" else x


def run_atb(comm: collops.Communicator, call: Call) -> Any:
    case = call.case
    fields: dict[str, Any] = {"backend": "shm", "rank": comm.rank, "hccl_comm": comm}
    op = collops.Operation(
        collops.AllGatherVParam(**fields)
        if case.operator == "all_gather_v"
        else collops.ReduceScatterVParam(reduce_type=case.op, **fields)
    )
    x = place(comm, call.memory, input_of(call, comm.rank))
    ins = [x, *list(inputs(case)[comm.rank].values())[1:]]
    out = poisoned(comm, call.memory, (case.rows[comm.rank], *x.shape[1:]), x.dtype)
    size = op.get_workspace_size(ins, [out])
    op.execute(ins, [out], np.empty(size, np.uint8) if size else None)
    return out


def strided(array: Any) -> Any:
    """The same values with holes between them, unless there is one dim: dim 0 stays as it is."""
    if array.ndim < 2:
        return array
    wide = np.empty((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def run_plain(comm: collops.Communicator, call: Call) -> Any:
    case, dim = call.case, call.dim
    x = place(comm, call.memory, np.moveaxis(input_of(call, comm.rank), 0, dim))
    rows = case.rows[comm.rank]
    shape = np.moveaxis(np.empty((rows, *case.x_shapes[0][1:]), np.bool_), 0, dim).shape
    out = poisoned(comm, call.memory, shape, x.dtype) if call.give_out else None
    width = math.prod(case.x_shapes[0][1:])
    sizes = [s[0] for s in case.x_shapes] if case.operator == "all_gather_v" else list(case.rows)
    assert [size * width for size in sizes] == list(case.counts)
    if call.form == "strided" and dim % x.ndim != 0:
        x = strided(x)
    if case.operator == "all_gather_v":
        gathered = gather(comm, call, x, sizes, out)
    else:
        gathered = reduce(comm, call, x, sizes, out)
    assert out is None or gathered is out
    return np.moveaxis(gathered, dim, 0)


def gather(comm: collops.Communicator, call: Call, x: Any, sizes: list[int], out: Any) -> Any:
    given = sizes if call.give_sizes else None
    if call.form != "list":
        return comm.all_gatherv(x, given, call.dim, out)
    ranks = np.full(x.shape, comm.rank, np.int16)
    gathered, whose = comm.all_gatherv([x, ranks], given, call.dim, [out, None])
    blocks = np.split(whose, np.cumsum(sizes)[:-1], call.dim)
    assert all((block == rank).all() for rank, block in enumerate(blocks))
    return gathered


def reduce(comm: collops.Communicator, call: Call, x: Any, sizes: list[int], out: Any) -> Any:
    op = call.case.op
    if call.form == "list":
        blocks = np.split(x, np.cumsum(sizes)[:-1], call.dim)
        return comm.reduce_scatterv(blocks, None, call.dim, op, out)
    return comm.reduce_scatterv(x, sizes, call.dim, op, out)


def run_program(rank: int, calls: Sequence[Call]) -> list[Any]:
    """This rank's output of every call, as plain numpy can hold it."""
    comm = collops.init()
    outputs = []
    for call in calls:
        out = run_atb(comm, call) if call.level == "atb" else run_plain(comm, call)
        out = np.array(out)
        outputs.append(out.view(np.uint16) if call.case.dtype == "bfloat16" else out)
    return outputs


def check(ranks: int, threads: bool, calls: list[Call]) -> None:
    """Runs a program and compares every output of every rank."""
    outputs = run_ranks(run_program, ranks, calls, threads=threads)
    for number, call in enumerate(calls):
        event(f"{call.level} {call.case.operator} {call.form} {call.memory}")
        for rank, want in enumerate(expected(call.case)):
            got = outputs[rank][number]
            assert got.shape == want.shape, (number, rank)
            wrong = differs(got, want, call.case.dtype)
            assert not wrong.any(), (number, rank, call, np.argwhere(wrong)[:3])


@given(programs(["plain"]))
def test_programs_of_the_plain_level(program: tuple[int, bool, list[Call]]) -> None:
    check(*program)


@given(programs(["gather", "reduce"]))
def test_programs_of_the_atb_level(program: tuple[int, bool, list[Call]]) -> None:
    check(*program)


@given(programs(["plain", "gather", "reduce"]))
def test_programs_of_both(program: tuple[int, bool, list[Call]]) -> None:
    check(*program)
