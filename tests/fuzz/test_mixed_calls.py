"""Programs that mix all operators on one communicator, against golden.

Uneven and even collectives and LinearParallel, at both levels and started, fused and as a pipeline:
one call's memory, signals and plans meet those of another operator. Bit for bit, but for products
of random numbers, which are within golden's bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import ml_dtypes
import numpy as np
from collops.golden.cases import Case, all_outputs, case_bounds, inputs
from collops.golden.data.dtypes import DTYPES, REDUCE_DTYPES, differs
from collops.golden.data.reduction import REDUCE_OPS, has_reduction
from collops.golden.operators.linear_parallel.groups import LinearParallel, place
from collops.golden.operators.linear_parallel.reference import output_block, widened
from collops.golden.operators.table import OPERATORS
from hypothesis import event, given, settings
from hypothesis import strategies as st

import collops
from collops.testing import run_ranks

POISON = 0xA5
KINDS = ("index", "exact", "random", "cancel", "special")
MEMORIES = ("plain", "window", "unaligned")
ATB_OPS = ("sum", "max", "min", "prod")
# Rows and columns around what the products' blocks and the stages' chunks hold.
ROWS = st.one_of(st.integers(0, 9), st.integers(0, 9), st.sampled_from([32, 33, 130]))
WIDTHS = st.one_of(st.integers(1, 20), st.integers(1, 20), st.sampled_from([64, 65, 257]))
EVEN = ("all_gather", "reduce_scatter", "all_reduce", "broadcast")
ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, PURE, GRID = range(5)


@dataclass(frozen=True)
class Call:
    """One call: golden's case, its level or that it is started, and where its tensors lie."""

    case: Case
    level: str
    memory: str


def ops_of(dtype: str, level: str) -> list[str]:
    ops = ATB_OPS if level == "atb" else REDUCE_OPS
    return [op for op in ops if has_reduction(op, dtype)]


@st.composite
def uneven(draw: st.DrawFn, ranks: int, level: str) -> Case:
    gathers = draw(st.booleans())
    dtype = draw(st.sampled_from(DTYPES if gathers else REDUCE_DTYPES))
    ops = [op for op in ops_of(dtype, level) if level == "plain" or op != "prod"]
    width = draw(WIDTHS)
    rows = draw(st.lists(ROWS, min_size=ranks, max_size=ranks))
    rows[draw(st.integers(0, ranks - 1))] += 0 if any(rows) else 1
    counts = [n * width for n in rows]
    total = sum(rows)
    return Case(
        operator="all_gather_v" if gathers else "reduce_scatter_v",
        name="fuzz",
        rank_size=ranks,
        dtype=dtype,
        counts=tuple(counts),
        displs=tuple([0, *accumulate(counts)][:-1]),
        x_shapes=tuple((n, width) for n in rows) if gathers else ((total, width),) * ranks,
        rows=(total,) * ranks if gathers else tuple(rows),
        op="" if gathers else draw(st.sampled_from(ops)),
        kind=draw(st.sampled_from(KINDS)),
        seed=draw(st.integers(0, 9)),
    )


@st.composite
def even(draw: st.DrawFn, ranks: int, level: str, operator: str) -> Case:
    reduces = operator in ("reduce_scatter", "all_reduce")
    dtype = draw(st.sampled_from(REDUCE_DTYPES if reduces else DTYPES))
    rows = draw(ROWS) * (ranks if operator == "reduce_scatter" else 1)
    shape = (max(rows, int(operator == "all_gather")), draw(WIDTHS))
    make = OPERATORS[operator].even_case
    assert make is not None
    return make(
        ranks,
        "fuzz",
        shape,
        dtype,
        op=draw(st.sampled_from(ops_of(dtype, level))) if reduces else "",
        kind=draw(st.sampled_from(KINDS)),
        root=draw(st.integers(0, ranks - 1)) if operator == "broadcast" else 0,
        seed=draw(st.integers(0, 9)),
    )


def parts(draw: st.DrawFn, total: int, members: int) -> tuple[int, ...]:
    """Numbers of rows whose sum is `total`; some may be 0."""
    cuts = sorted(draw(st.integers(0, total)) for _ in range(members - 1))
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True))


@st.composite
def linear(draw: st.DrawFn, ranks: int, level: str) -> Case:
    kinds = [ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, GRID]
    kind = draw(st.sampled_from(kinds if level == "plain" else [*kinds, PURE]))
    ag_dim = draw(st.sampled_from([d for d in range(1, ranks + 1) if ranks % d == 0]))
    call = LinearParallel(
        kind,
        ranks,
        ag_dim if kind == GRID else 0,
        ranks // ag_dim if kind == GRID else 0,
        inner_dim_is_ag=draw(st.booleans()),
        trans_weight=draw(st.booleans()),
        has_residual=draw(st.booleans()),
        keep_intermediate=level == "atb" and kind == ALL_GATHER and draw(st.booleans()),
    )
    groups = [place(call, rank) for rank in range(ranks)]
    total = draw(ROWS)  # rows of every gather group's x together; with one member, of each x
    gathered = {own.gathered: parts(draw, total, len(own.gathered)) for own in groups}
    reduced = {own.reduced: parts(draw, total, len(own.reduced)) for own in groups}
    if kind in (ALL_GATHER, GRID):
        call = replace(call, gather_rows=tuple(gathered[own.gathered] for own in groups))
    if kind in (REDUCE_SCATTER, GRID):
        call = replace(call, scatter_rows=tuple(reduced[own.reduced] for own in groups))
    k = draw(WIDTHS)
    shapes = tuple((gathered[own.gathered][own.ag_index], k) for own in groups)
    if kind not in (ALL_GATHER, GRID):
        shapes = ((total, k),) * ranks
    return Case(
        operator="linear_parallel",
        name="fuzz",
        rank_size=ranks,
        dtype=draw(st.sampled_from(["float16", "bfloat16", "float32"])),
        counts=(),
        displs=(),
        x_shapes=shapes,
        rows=tuple(output_block(call, r, shapes)[2][0] for r in range(ranks)),
        kind=draw(st.sampled_from(["exact", "random"])),
        seed=draw(st.integers(0, 9)),
        linear=call,
        columns=draw(WIDTHS),
    )


@st.composite
def calls(draw: st.DrawFn, ranks: int) -> Call:
    way = draw(st.sampled_from(["atb", "plain", "started"]))
    level = "plain" if way == "started" else way
    operator = draw(st.sampled_from(("linear", "linear", "uneven", "uneven", *EVEN)))
    if operator in EVEN:
        case = draw(even(ranks, level, operator))
    else:
        case = draw(linear(ranks, level) if operator == "linear" else uneven(ranks, level))
    return Call(case, way, draw(st.sampled_from(MEMORIES)))


@st.composite
def programs(draw: st.DrawFn) -> tuple[int, bool, bool, list[Call]]:
    """Number of ranks, whether they are threads, whether products are fused, and the calls."""
    ranks = draw(st.sampled_from([2, 3, 4, 6]))
    drawn = draw(st.lists(calls(ranks), min_size=4, max_size=10))
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


def param_of(comm: collops.Communicator, case: Case) -> Any:
    fields: dict[str, Any] = {"backend": "shm", "rank": comm.rank, "hccl_comm": comm}
    if case.linear is None:
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
    call = case.linear
    return collops.LinearParallelParam(
        **fields,
        type=call.type,
        trans_weight=call.trans_weight,
        has_residual=call.has_residual,
        keep_intermediate=call.keep_intermediate,
        two_dim_tp_info=collops.TwoDimTPInfo(
            ag_dim=call.ag_dim, rs_dim=call.rs_dim, inner_dim_is_ag=int(call.inner_dim_is_ag)
        ),
        gather_rows=list(call.gather_rows[comm.rank]) if call.gather_rows else [],
        scatter_rows=list(call.scatter_rows[comm.rank]) if call.scatter_rows else [],
    )


def run_atb(comm: collops.Communicator, call: Call, ins: list[Any]) -> list[Any]:
    op = collops.Operation(param_of(comm, call.case))
    outs = [poisoned(comm, call.memory, desc.shape, ins[0].dtype) for desc in op.infer_shape(ins)]
    scratch = np.full(op.get_workspace_size(ins, outs), POISON, np.uint8)
    op.execute(ins, outs, scratch)
    return outs or ins[:1]


class Starting:
    """A communicator whose calls are started: a method returns the StartedCall."""

    def __init__(self, comm: collops.Communicator, pending: list[collops.StartedCall]) -> None:
        self.comm, self.rank, self._pending = comm, comm.rank, pending

    def __getattr__(self, name: str) -> Any:
        def start(*args: Any, **kwargs: Any) -> Any:
            self._pending.append(self.comm.start(name, *args, **kwargs))
            return args[0] if name == "broadcast" else kwargs.get("out", args[-1])

        return getattr(self.comm, name) if name == "empty" else start


def run_plain(comm: Any, call: Call, ins: list[Any]) -> list[Any]:
    case, rank = call.case, comm.rank
    x, shape = ins[0], all_outputs(case)[rank][0].shape
    if case.operator == "broadcast":
        return [comm.broadcast(x, case.root)]
    if case.operator == "all_gather":
        shape = (shape[0] * shape[1], *shape[2:])
    out = poisoned(comm, call.memory, shape, x.dtype)
    simple: dict[str, Callable[[], Any]] = {
        "all_gather_v": lambda: comm.all_gatherv(x, [s[0] for s in case.x_shapes], 0, out),
        "reduce_scatter_v": lambda: comm.reduce_scatterv(x, list(case.rows), 0, case.op, out),
        "all_gather": lambda: comm.all_gather(x, out=out),
        "reduce_scatter": lambda: comm.reduce_scatter(x, case.op, out=out),
        "all_reduce": lambda: comm.all_reduce(x, case.op, out=out),
        "linear_parallel": lambda: multiply(comm, case, ins, out),
    }
    assert simple[case.operator]() is out
    return [out.reshape(all_outputs(case)[rank][0].shape)]


def multiply(comm: Any, case: Case, ins: list[Any], out: Any) -> Any:
    call = case.linear
    assert call is not None
    weight, residual = ins[1], ins[2] if call.has_residual else None
    more: dict[str, Any] = {"trans_weight": call.trans_weight, "residual": residual, "out": out}
    if call.gather_rows:
        more["gather_rows"] = list(call.gather_rows[comm.rank])
    if call.scatter_rows:
        more["scatter_rows"] = list(call.scatter_rows[comm.rank])
    if call.type == GRID:
        more |= {"ag_dim": call.ag_dim, "rs_dim": call.rs_dim}
        more["inner_dim_is_ag"] = call.inner_dim_is_ag
    methods: dict[int, Callable[..., Any]] = {
        ALL_REDUCE: comm.matmul_all_reduce,
        REDUCE_SCATTER: comm.matmul_reduce_scatter,
        ALL_GATHER: comm.all_gather_matmul,
        GRID: comm.all_gather_matmul_reduce_scatter,
    }
    return methods[call.type](ins[0], weight, **more)


def run_program(rank: int, program: Sequence[Call]) -> list[list[Any]]:
    """This rank's outputs of every call, as plain numpy can hold them."""
    comm = collops.init()
    pending: list[collops.StartedCall] = []
    starting = Starting(comm, pending)
    made = []
    for call in program:
        x, *others = inputs(call.case)[rank].values()
        carried = ml_dtypes.bfloat16 if call.case.dtype == "bfloat16" else x.dtype
        moved = [x, *others] if call.case.linear is not None else [x]
        ins = []
        for tensor in moved:
            ins.append(poisoned(comm, call.memory, tensor.shape, carried))
            ins[-1][...] = tensor.view(carried)
        ins += others[len(moved) - 1 :]
        before = [tensor.tobytes() for tensor in ins]
        if call.level == "atb":
            outs = run_atb(comm, call, ins)
        else:
            outs = run_plain(starting if call.level == "started" else comm, call, ins)
        made.append((call, ins, before, outs))
    for number in np.random.default_rng(rank).permutation(len(pending)):
        pending[number].wait()
    results = []
    for call, ins, before, outs in made:
        after = [tensor.tobytes() for tensor in ins]
        assert call.case.operator == "broadcast" or after == before, "an input was changed"
        copies = [np.array(out) for out in outs]
        bits = call.case.dtype == "bfloat16"
        results.append([copy.view(np.uint16) if bits else copy for copy in copies])
    return results


def wrong_elements(case: Case, rank: int, number: int, got: Any, want: Any) -> Any:
    bounds = case_bounds(case)
    if bounds is None or number > 0:
        return differs(got, want, case.dtype)
    off = np.abs(widened(got, case.dtype).astype(np.float64) - widened(want, case.dtype))
    return ~(off <= bounds[rank])


# The other half of the time is that of test_calls.py.
@settings(max_examples=max(30, settings().max_examples // 2))
@given(programs())
def test_programs_of_all_operators(program: tuple[int, bool, bool, list[Call]]) -> None:
    ranks, threads, fused, drawn = program
    env = {"COLLOPS_FUSED": str(int(fused))}
    results = run_ranks(run_program, ranks, drawn, threads=threads, env=env)
    for at, call in enumerate(drawn):
        event(f"{call.level} {call.case.operator} {call.memory}")
        for rank, wanted in enumerate(all_outputs(call.case)):
            assert len(results[rank][at]) == len(wanted), (at, rank, call)
            for number, (got, want) in enumerate(zip(results[rank][at], wanted, strict=True)):
                assert got.shape == want.shape, (at, rank, call)
                wrong = wrong_elements(call.case, rank, number, got, want)
                assert not wrong.any(), (at, rank, call, np.argwhere(wrong)[:3])
