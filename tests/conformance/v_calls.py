"""AllGatherV and ReduceScatterV: the calls of golden's cases at both levels."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from collops.golden.cases import ATB_REDUCE_OPS, Case, all_cases
from collops.golden.data.bounds import bound
from collops.golden.data.dtypes import is_float, widened

import collops
from tests.conformance.once import all_outputs, inputs
from tests.conformance.operator_runs import Outputs
from tests.conformance.runs import POISON, Run, as_real


def cases_of(operator: str, run: Run) -> tuple[Case, ...]:
    """The cases that a level can state: ATB has three reductions, the plain level no gaps."""
    cases = level_cases(operator, run.ranks, run.level)
    return tuple(case for case in cases if run.reduces(case.dtype, case.op, evenly=False))


@lru_cache
def level_cases(operator: str, ranks: int, level: str) -> tuple[Case, ...]:
    cases = all_cases(operator, rank_sizes=(ranks,))
    if level == "atb":
        return tuple(case for case in cases if case.op in ("", *ATB_REDUCE_OPS))
    return tuple(case for case in cases if is_packed(case))


def is_packed(case: Case) -> bool:
    return list(case.displs) == list(accumulate(case.counts, initial=0))[:-1]


def is_whole(case: Case) -> bool:
    """Whether the case is a call on whole rows, so that the plain level keeps its shapes."""
    rows = [shape[1:] for shape in case.x_shapes]
    width = int(np.prod(rows[0]))
    used = sum(case.counts)
    if case.operator == "all_gather_v":
        exact = all(
            int(np.prod(shape)) == count
            for shape, count in zip(case.x_shapes, case.counts, strict=True)
        )
        exact = exact and all(rows * width == used for rows in case.rows)
    else:
        exact = int(np.prod(case.x_shapes[0])) == used
        exact = exact and all(r * width == c for r, c in zip(case.rows, case.counts, strict=True))
    return exact and len(set(rows)) == 1 and all(count % width == 0 for count in case.counts)


def wanted(case: Case, run: Run) -> Outputs:
    """Golden's outputs; the plain level has no place behind the elements of a call."""
    outputs = all_outputs(case)
    if run.level == "atb" or is_whole(case):
        return outputs
    gathers = case.operator == "all_gather_v"
    used = [sum(case.counts) if gathers else count for count in case.counts]
    return [[out.reshape(-1)[:length]] for [out], length in zip(outputs, used, strict=True)]


def bounds(case: Case, run: Run) -> list[Any] | None:
    """How far HCCL's order of additions may lead."""
    exact = run.sums_in_order or case.op != "sum" or case.kind == "exact"
    if exact or not is_float(case.dtype):
        return None
    dtype = case.dtype
    with np.errstate(invalid="ignore"):  # NaN stays NaN
        sizes = [np.abs(widened(own["x"], dtype), dtype=np.float64) for own in inputs(case)]
        total = sum(size.reshape(-1) for size in sizes)
    bounds = []
    for count, start, [want] in zip(case.counts, case.displs, all_outputs(case), strict=True):
        magnitude = np.zeros(want.size)
        magnitude[:count] = total[start : start + count]
        magnitude[~np.isfinite(magnitude)] = 0
        off = bound(dtype, case.op, case.rank_size, magnitude)
        whole = run.level == "atb" or is_whole(case)
        bounds.append(off.reshape(want.shape) if whole else off[:count])
    return bounds


def call(comm: collops.Communicator, case: Case, run: Run) -> list[Any]:
    return [(call_atb if run.level == "atb" else call_plain)(comm, case, run)]


def call_atb(comm: collops.Communicator, case: Case, run: Run) -> Any:
    fields = run.param(comm)
    op = collops.Operation(
        collops.AllGatherVParam(**fields)
        if case.operator == "all_gather_v"
        else collops.ReduceScatterVParam(reduce_type=case.op, **fields)
    )
    x, *others = inputs(case)[comm.rank].values()
    x = as_real(x, case.dtype)
    out = run.poisoned(comm, (case.rows[comm.rank], *x.shape[1:]), x.dtype)
    x = run.place(comm, x)
    run.execute(comm, op, [x, *others], [out])
    return run.values(out)


def call_plain(comm: collops.Communicator, case: Case, run: Run) -> Any:
    x = as_real(inputs(case)[comm.rank]["x"], case.dtype)
    width = int(np.prod(x.shape[1:])) if is_whole(case) else 1
    own, used = case.counts[comm.rank], sum(case.counts)
    gathers = case.operator == "all_gather_v"
    if not is_whole(case):
        x = x.reshape(-1)[: own if gathers else used]
    sizes = [count // width for count in case.counts]
    shape = ((used if gathers else own) // width, *x.shape[1:])
    out = run.poisoned(comm, shape, x.dtype)
    x = run.place(comm, x)
    run.enter()
    if gathers:
        gather(comm, x, sizes, out, run)
    else:
        reduce(comm, x, sizes, case.op, out, run)
    return run.values(out)


def moved(array: Any) -> Any:
    """The same memory with its rows along the last dimension."""
    return np.moveaxis(array, 0, -1)


def gather(comm: collops.Communicator, x: Any, sizes: list[int], out: Any, run: Run) -> None:
    if run.form == "moved":
        comm.all_gatherv(moved(x), sizes, dim=-1, out=moved(out))
        exchanged = np.moveaxis(comm.all_gatherv(moved(x), dim=-1), -1, 0)
    elif run.form == "list":
        bits = x.reshape(len(x), int(np.prod(x.shape[1:]))).view(np.uint8)
        second = np.full((len(out), bits.shape[1]), POISON, np.uint8)
        comm.all_gatherv([x, bits], sizes, out=[out, second])
        assert second.tobytes() == out.tobytes(), "the list's tensors differ"
        exchanged = comm.all_gatherv((bits, x))[1]
    else:
        comm.all_gatherv(x, sizes, out=out)
        exchanged = comm.all_gatherv(x)
    same = run.values(exchanged).tobytes() == run.values(out).tobytes()
    assert same, "without sizes the result differs"


def reduce(
    comm: collops.Communicator, x: Any, sizes: list[int], op: str, out: Any, run: Run
) -> None:
    if run.form == "moved":
        comm.reduce_scatterv(moved(x), sizes, dim=-1, op=op, out=moved(out))
    elif run.form == "list":
        blocks = np.split(x, np.cumsum(sizes)[:-1])
        comm.reduce_scatterv(blocks, op=op, out=out)
    else:
        comm.reduce_scatterv(x, sizes, op=op, out=out)
