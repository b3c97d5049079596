"""Programs that mix all operators on one communicator, against golden.

Uneven and even collectives and LinearParallel, at both levels and started, fused and as a pipeline:
one call's memory, signals and plans meet those of another operator. Bit for bit, but for products
of random numbers, which are within golden's bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import ml_dtypes
import numpy as np
from collops.golden.cases import ATB_REDUCE_OPS, Case, all_outputs, case_bounds, inputs
from collops.golden.data.dtypes import DTYPES, REDUCE_DTYPES, differs, widened
from collops.golden.data.reduction import REDUCE_OPS, has_reduction
from collops.golden.operators.table import OPERATORS
from hypothesis import event, given, settings
from hypothesis import strategies as st

import collops
from collops.testing import run_ranks
from tests import linear_case
from tests.linear_case import METHODS

POISON = 0xA5
KINDS = ("index", "exact", "random", "cancel", "special")
MEMORIES = ("plain", "window", "unaligned")
# Around what one slot (16 KiB) and one chunk of a stage (128 KiB) hold, for types of 1 to 8 bytes.
LARGE = (2047, 2048, 2049, 8192, 16_384, 16_385, 65_537, 131_101)
COUNTS = st.one_of(st.integers(0, 40), st.integers(0, 40), st.sampled_from(LARGE))
# Rows and columns around what the products' blocks and the stages' chunks hold.
ROWS = st.one_of(st.integers(0, 9), st.integers(0, 9), st.sampled_from([32, 33, 130]))
WIDTHS = st.one_of(st.integers(1, 20), st.integers(1, 20), st.sampled_from([64, 65, 257]))
EVEN = ("all_gather", "reduce_scatter", "all_reduce", "broadcast")


@dataclass(frozen=True)
class Call:
    """One call: golden's case, its level or that it is started, and where its tensors lie.

    An uneven one of the plain level cuts its tensor along `dim`; the case is then that of the same
    numbers with their rows in front.
    """

    case: Case
    level: str
    memory: str
    dim: int = 0
    form: str = "whole"
    give_out: bool = True
    give_sizes: bool = True


def drawn_op(draw: st.DrawFn, dtype: str, ops: Sequence[str] = REDUCE_OPS) -> str:
    return draw(st.sampled_from([op for op in ops if has_reduction(op, dtype)]))


def uneven_case(draw: st.DrawFn, gathers: bool, ops: Sequence[str], **fields: Any) -> Case:
    dtype = draw(st.sampled_from(DTYPES if gathers else REDUCE_DTYPES))
    return Case(
        operator="all_gather_v" if gathers else "reduce_scatter_v",
        name="fuzz",
        dtype=dtype,
        op="" if gathers else drawn_op(draw, dtype, ops),
        kind=draw(st.sampled_from(KINDS)),
        seed=draw(st.integers(0, 9)),
        **fields,
    )


def rows_of(count: int, row: Sequence[int]) -> int:
    return -(-count // math.prod(row))


@st.composite
def atb_gather(draw: st.DrawFn, ranks: int) -> Call:
    """Blocks in any order, with gaps."""
    counts = draw(st.lists(COUNTS, min_size=ranks, max_size=ranks).filter(any))
    row = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    gaps = draw(st.lists(st.integers(0, 9), min_size=ranks, max_size=ranks))
    displs, end = [0] * ranks, 0
    for rank in draw(st.permutations(range(ranks))):
        displs[rank] = end + gaps[rank]
        end = displs[rank] + counts[rank]
    case = uneven_case(
        draw,
        True,
        (),
        rank_size=ranks,
        counts=tuple(counts),
        displs=tuple(displs),
        x_shapes=tuple((rows_of(c, row) + draw(st.integers(0, 1)), *row) for c in counts),
        rows=(rows_of(end, row) + draw(st.integers(0, 2)),) * ranks,
    )
    return Call(case, "atb", draw(st.sampled_from(MEMORIES)))


@st.composite
def atb_reduction(draw: st.DrawFn, ranks: int) -> Call:
    """Slices that may overlap."""
    shape = draw(st.integers(1, 40)), draw(st.one_of(st.integers(1, 30), st.just(2049)))
    numel = math.prod(shape)
    counts = draw(st.lists(st.integers(0, numel), min_size=ranks, max_size=ranks))
    case = uneven_case(
        draw,
        False,
        ATB_REDUCE_OPS,
        rank_size=ranks,
        counts=tuple(counts),
        displs=tuple(draw(st.integers(0, numel - count)) for count in counts),
        x_shapes=(shape,) * ranks,
        rows=tuple(rows_of(count, shape[1:]) + draw(st.integers(0, 2)) for count in counts),
    )
    return Call(case, "atb", draw(st.sampled_from(MEMORIES)))


@st.composite
def plain_uneven(draw: st.DrawFn, ranks: int, level: str) -> Call:
    gathers = draw(st.booleans())
    others = tuple(draw(st.lists(st.sampled_from([2, 3, 1, 4, 0]), max_size=3)))
    sizes = draw(st.lists(st.integers(0, 9), min_size=ranks, max_size=ranks))
    if len(others) < 2 and draw(st.booleans()):
        sizes[draw(st.integers(0, ranks - 1))] = draw(st.sampled_from(LARGE))
    counts = [size * math.prod(others) for size in sizes]
    shapes = [(size, *others) for size in sizes] if gathers else [(sum(sizes), *others)] * ranks
    case = uneven_case(
        draw,
        gathers,
        REDUCE_OPS,
        rank_size=ranks,
        counts=tuple(counts),
        displs=tuple([0, *accumulate(counts)][:-1]),
        x_shapes=tuple(shapes),
        rows=(sum(sizes),) * ranks if gathers else tuple(sizes),
    )
    return Call(
        case,
        level,
        draw(st.sampled_from(MEMORIES)),
        dim=draw(st.integers(-len(others) - 1, len(others))),
        form=draw(st.sampled_from(["whole", "whole", "list", "strided"])),
        give_out=draw(st.booleans()),
        give_sizes=draw(st.booleans()),
    )


@st.composite
def even(draw: st.DrawFn, ranks: int, level: str, operator: str) -> Case:
    reduces = operator in ("reduce_scatter", "all_reduce")
    dtype = draw(st.sampled_from(REDUCE_DTYPES if reduces else DTYPES))
    rows = draw(ROWS) * (ranks if operator == "reduce_scatter" else 1)
    shape = (max(rows, int(operator == "all_gather")), draw(WIDTHS))
    ops = (*ATB_REDUCE_OPS, "prod") if level == "atb" else REDUCE_OPS
    make = OPERATORS[operator].even_case
    assert make is not None
    return make(
        ranks,
        "fuzz",
        shape,
        dtype,
        op=drawn_op(draw, dtype, ops) if reduces else "",
        kind=draw(st.sampled_from(KINDS)),
        root=draw(st.integers(0, ranks - 1)) if operator == "broadcast" else 0,
        seed=draw(st.integers(0, 9)),
    )


@st.composite
def linear(draw: st.DrawFn, ranks: int, level: str) -> Case:
    kind = draw(st.sampled_from([*METHODS]))
    keeps = level == "atb" and kind == linear_case.ALL_GATHER and draw(st.booleans())
    sizes = [draw(ROWS)], [draw(WIDTHS), draw(WIDTHS)]
    random = draw(st.randoms())
    cut = partial(linear_case.parts, random)
    return linear_case.drawn(
        random, ranks, kind, cut, *sizes, keeps=keeps, data=("exact", "random")
    )


@st.composite
def calls(draw: st.DrawFn, ranks: int) -> Call:
    way = draw(st.sampled_from(["atb", "plain", "started"]))
    level = "plain" if way == "started" else way
    operator = draw(st.sampled_from(("linear", "linear", "uneven", "uneven", "uneven", *EVEN)))
    if operator == "uneven" and level == "plain":
        return draw(plain_uneven(ranks, way))
    if operator == "uneven":
        return draw(st.one_of(atb_gather(ranks), atb_reduction(ranks)))
    case = draw(linear(ranks, level) if operator == "linear" else even(ranks, level, operator))
    return Call(case, way, draw(st.sampled_from(MEMORIES)))


@st.composite
def programs(draw: st.DrawFn) -> tuple[int, bool, bool, list[Call]]:
    """Number of ranks, whether they are threads, whether products are fused, and the calls."""
    ranks = draw(st.sampled_from([2, 3, 4, 6, 7]))
    drawn = draw(st.lists(calls(ranks), min_size=4, max_size=12))
    return ranks, draw(st.booleans()), draw(st.booleans()), drawn


def poisoned(comm: collops.Communicator, memory: str, shape: Sequence[int], dtype: Any) -> Any:
    """Memory of a kind, full of poison."""
    if memory == "window":
        array = comm.empty(shape, dtype)
    elif memory == "unaligned":
        count = math.prod(shape) * np.dtype(dtype).itemsize
        array = np.empty(count + 1, np.uint8)[1:].view(dtype).reshape(shape)
    else:
        array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[...] = POISON
    return array


def place(comm: collops.Communicator, memory: str, tensor: Any, dtype: str) -> Any:
    """Golden's tensor in memory of a kind."""
    carried = ml_dtypes.bfloat16 if dtype == "bfloat16" else tensor.dtype
    array = poisoned(comm, memory, tensor.shape, carried)
    array[...] = tensor.view(carried)
    return array


def param_of(comm: collops.Communicator, case: Case) -> Any:
    fields: dict[str, Any] = {"backend": "shm", "rank": comm.rank, "hccl_comm": comm}
    if case.linear is not None:
        return linear_case.param_of(case, comm.rank, **fields)
    structs: dict[str, Any] = {
        "all_gather_v": collops.AllGatherVParam,
        "reduce_scatter_v": collops.ReduceScatterVParam,
        "all_gather": collops.AllGatherParam,
        "reduce_scatter": collops.ReduceScatterParam,
        "all_reduce": collops.AllReduceParam,
        "broadcast": collops.BroadcastParam,
    }
    if case.op:
        key = "all_reduce_type" if case.operator == "all_reduce" else "reduce_type"
        fields[key] = case.op
    return structs[case.operator](rank_root=case.root, **fields)


def run_atb(comm: collops.Communicator, call: Call, ins: list[Any]) -> list[Any]:
    op = collops.Operation(param_of(comm, call.case))
    outs = [poisoned(comm, call.memory, desc.shape, ins[0].dtype) for desc in op.infer_shape(ins)]
    scratch = np.full(op.get_workspace_size(ins, outs), POISON, np.uint8)
    op.execute(ins, outs, scratch)
    return outs or ins[:1]


class Calling:
    """Makes calls of the plain level, or starts them; what it returns is asked for the result."""

    def __init__(self, comm: collops.Communicator) -> None:
        self.comm, self.rank = comm, comm.rank
        self.pending: list[collops.StartedCall] = []

    def __call__(self, starts: bool, name: str, *args: Any, **words: Any) -> Callable[[], Any]:
        if starts:
            self.pending.append(self.comm.start(name, *args, **words))
            return self.pending[-1].wait
        result = getattr(self.comm, name)(*args, **words)
        return lambda: result


def strided(array: Any) -> Any:
    """The same values with holes between them, unless there is one dim: dim 0 stays as it is."""
    if array.ndim < 2:
        return array
    wide = np.empty((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def run_uneven(calling: Calling, call: Call, x: Any) -> Callable[[], list[Any]]:
    """The call of x, which has its rows in `dim`; its result with the rows in front."""
    case, dim, starts = call.case, call.dim, call.level == "started"
    rows = case.rows[calling.rank]
    shape = np.moveaxis(np.empty((rows, *case.x_shapes[0][1:]), np.bool_), 0, dim).shape
    out = poisoned(calling.comm, call.memory, shape, x.dtype) if call.give_out else None
    tensors: tuple[Any, ...]
    if case.operator == "all_gather_v":
        sizes = [own[0] for own in case.x_shapes]
        ranks = np.full(x.shape, calling.rank, np.int16)
        listed = call.form == "list"
        given = sizes if call.give_sizes else None
        tensors = ([x, ranks], given, dim, [out, None]) if listed else (x, given, dim, out)
        result = calling(starts, "all_gatherv", *tensors)
    else:
        sizes = list(case.rows)
        tensors = (x, sizes, dim, case.op, out)
        if call.form == "list":
            blocks = np.split(x, np.cumsum(sizes)[:-1], dim)
            tensors = (blocks, None, dim, case.op, out)
        result = calling(starts, "reduce_scatterv", *tensors)

    def finish() -> list[Any]:
        got = result()
        if isinstance(got, list):
            got, whose = got
            of_ranks = np.split(whose, np.cumsum(sizes)[:-1], dim)
            assert all((block == rank).all() for rank, block in enumerate(of_ranks))
        assert out is None or got is out
        return [np.moveaxis(got, dim, 0)]

    return finish


def run_plain(calling: Calling, call: Call, ins: list[Any]) -> Callable[[], list[Any]]:
    case, rank, starts = call.case, calling.rank, call.level == "started"
    if case.operator in ("all_gather_v", "reduce_scatter_v"):
        return run_uneven(calling, call, ins[0])
    x, shape = ins[0], all_outputs(case)[rank][0].shape
    if case.operator == "broadcast":
        result = calling(starts, "broadcast", x, case.root)
        return lambda: [result()]
    flat = (shape[0] * shape[1], *shape[2:]) if case.operator == "all_gather" else shape
    out = poisoned(calling.comm, call.memory, flat, x.dtype)
    if case.linear is not None:
        residual = ins[2] if case.linear.has_residual else None
        words = linear_case.words_of(case, rank) | {"residual": residual, "out": out}
        result = calling(starts, METHODS[case.linear.type], *ins[:2], **words)
    else:
        op = (case.op,) if case.op else ()
        result = calling(starts, case.operator, x, *op, out=out)

    def finish() -> list[Any]:
        assert result() is out
        return [out.reshape(shape)]

    return finish


def run_program(rank: int, program: Sequence[Call]) -> list[list[Any]]:
    """This rank's outputs of every call, as plain numpy can hold them."""
    comm = collops.init()
    calling = Calling(comm)
    made: list[tuple[Call, list[Any], list[bytes], Callable[[], list[Any]]]] = []
    for call in program:
        x, *others = inputs(call.case)[rank].values()
        ins = [place(comm, call.memory, np.moveaxis(x, 0, call.dim), call.case.dtype)]
        if call.case.linear is not None:
            others = [place(comm, call.memory, tensor, call.case.dtype) for tensor in others]
        if call.form == "strided" and call.dim % x.ndim != 0:
            ins[0] = strided(ins[0])
        ins += others
        before = [tensor.tobytes() for tensor in ins]
        if call.level == "atb":
            outs = run_atb(comm, call, ins)
            made.append((call, ins, before, lambda outs=outs: outs))
        else:
            made.append((call, ins, before, run_plain(calling, call, ins)))
    for number in np.random.default_rng(rank).permutation(len(calling.pending)):
        calling.pending[number].wait()
    results = []
    for call, ins, before, finish in made:
        copies = [np.array(out) for out in finish()]
        after = [tensor.tobytes() for tensor in ins]
        assert call.case.operator == "broadcast" or after == before, "an input was changed"
        bits = call.case.dtype == "bfloat16"
        results.append([copy.view(np.uint16) if bits else copy for copy in copies])
    return results


def wrong_elements(case: Case, rank: int, number: int, got: Any, want: Any) -> Any:
    bounds = case_bounds(case)
    if bounds is None or number > 0:
        return differs(got, want, case.dtype)
    off = np.abs(widened(got, case.dtype).astype(np.float64) - widened(want, case.dtype))
    return ~(off <= bounds[rank])


@settings(max_examples=2 * settings().max_examples)
@given(programs())
def test_programs_of_all_operators(program: tuple[int, bool, bool, list[Call]]) -> None:
    ranks, threads, fused, drawn = program
    env = {"COLLOPS_FUSED": str(int(fused))}
    results = run_ranks(run_program, ranks, drawn, threads=threads, env=env)
    for at, call in enumerate(drawn):
        event(f"{call.level} {call.case.operator} {call.form} {call.memory}")
        for rank, wanted in enumerate(all_outputs(call.case)):
            assert len(results[rank][at]) == len(wanted), (at, rank, call)
            for number, (got, want) in enumerate(zip(results[rank][at], wanted, strict=True)):
                assert got.shape == want.shape, (at, rank, call)
                wrong = wrong_elements(call.case, rank, number, got, want)
                assert not wrong.any(), (at, rank, call, np.argwhere(wrong)[:3])
