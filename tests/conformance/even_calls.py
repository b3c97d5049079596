"""AllGather, ReduceScatter, AllReduce and Broadcast: the calls of golden's cases at both levels."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from collops.golden.cases import Case, all_cases
from collops.golden.data.bounds import bound
from collops.golden.data.dtypes import is_float, widened

import collops
from tests.conformance.once import inputs
from tests.conformance.runs import Run, as_real

STRUCTS = {
    "all_gather": collops.AllGatherParam,
    "reduce_scatter": collops.ReduceScatterParam,
    "all_reduce": collops.AllReduceParam,
    "broadcast": collops.BroadcastParam,
}
ATB_OPS = ("", "sum", "max", "min", "prod")


@lru_cache
def cases_of(operator: str, run: Run) -> tuple[Case, ...]:
    """The cases that a level can state: ATB has no avg, and an output of at least one row."""
    cases = all_cases(operator, rank_sizes=(run.ranks,))
    stated = [case for case in cases if run.level == "plain" or case.op in ATB_OPS]
    stated = [case for case in stated if not case.quant_type]
    if operator == "reduce_scatter" and run.backend == "hccl":
        stated = [case for case in stated if case.dtype != "int64"]  # as ATB
    return tuple(case for case in stated if run.reduces(case.dtype, case.op, evenly=True))


def bounds(case: Case, run: Run) -> list[Any] | None:
    """How far another order of additions may lead."""
    exact = run.sums_in_order or case.op not in ("sum", "prod") or case.kind == "exact"
    if exact or not is_float(case.dtype):
        return None
    with np.errstate(all="ignore"):  # NaN stays NaN
        sizes = [np.abs(widened(own["x"], case.dtype), dtype=np.float64) for own in inputs(case)]
        combine = np.add if case.op == "sum" else np.multiply
        total = combine.reduce(sizes)
    total[~np.isfinite(total)] = 0
    allowed = bound(case.dtype, case.op, case.rank_size, total)
    if case.operator == "all_reduce":
        return [allowed] * case.rank_size
    return np.split(allowed, case.rank_size)


@lru_cache
def quantised_cases(run: Run) -> tuple[Case, ...]:
    return tuple(c for c in all_cases("all_reduce", rank_sizes=(run.ranks,)) if c.quant_type)


class Tensors:
    """x and the output of one case on this rank; they may share memory where the run says so."""

    def __init__(self, comm: collops.Communicator, case: Case, run: Run) -> None:
        given = as_real(inputs(case)[comm.rank]["x"], case.dtype)
        shape = {
            "all_gather": (comm.size, *given.shape),
            "reduce_scatter": (case.rows[0], *given.shape[1:]),
        }.get(case.operator, given.shape)
        if run.on_device and run.level == "plain" and case.operator == "all_gather":
            shape = (comm.size * given.shape[0], *given.shape[1:])  # it cannot be reshaped there
        in_place = run.form == "in place"
        self.out = run.poisoned(comm, shape, given.dtype)
        if in_place and case.operator == "all_reduce":
            self.x = self.out
        elif in_place and case.operator == "all_gather" and run.level == "plain":
            self.x = self.out[comm.rank]
        else:
            self.x = run.place(comm, given)
        if in_place:
            self.x[...] = given
        self.before = run.values(self.x).tobytes()


def call(comm: collops.Communicator, case: Case, run: Run) -> list[Any]:
    return [(call_atb if run.level == "atb" else call_plain)(comm, case, run)]


def call_atb(comm: collops.Communicator, case: Case, run: Run) -> Any:
    fields = {**run.param(comm), "rank_root": case.root}
    if case.op:
        field = "all_reduce_type" if case.operator == "all_reduce" else "reduce_type"
        fields[field] = case.op
    op = collops.Operation(STRUCTS[case.operator](**fields))
    tensors = Tensors(comm, case, run)
    outs = [] if case.operator == "broadcast" else [tensors.out]
    size = run.execute(comm, op, [tensors.x], outs)
    assert size == 0 or run.on_device
    if not outs:
        return run.values(tensors.x)
    if tensors.x is not tensors.out:
        assert run.values(tensors.x).tobytes() == tensors.before, "x was changed"
    return run.values(tensors.out)


def call_quantised(comm: collops.Communicator, case: Case, run: Run) -> list[Any]:
    fields = run.param(comm)
    if run.backend == "hccl":
        fields["backend"] = "lccl"  # as in ATB
    fields |= {"quant_type": case.quant_type, "out_data_type": 1, "rank_root": case.root}
    op = collops.Operation(collops.AllReduceParam(**fields))
    ins = [run.place(comm, tensor) for tensor in inputs(case)[comm.rank].values()]
    before = [run.values(tensor).tobytes() for tensor in ins]
    out = run.poisoned(comm, ins[0].shape, np.float16)
    run.execute(comm, op, ins, [out])
    assert [run.values(tensor).tobytes() for tensor in ins] == before, "an input was changed"
    return [run.values(out)]


def call_plain(comm: collops.Communicator, case: Case, run: Run) -> Any:
    tensors = Tensors(comm, case, run)
    x, out = tensors.x, tensors.out
    run.enter()
    if case.operator == "all_gather":
        flat = out if run.on_device else out.reshape(-1, *x.shape[1:])
        assert comm.all_gather(x, out=flat) is flat
        again = comm.all_gather(x)
    elif case.operator == "reduce_scatter":
        assert comm.reduce_scatter(x, case.op, out=out) is out
        again = comm.reduce_scatter(x, op=case.op)
    elif case.operator == "all_reduce":
        apart = comm.all_reduce(x, case.op)
        assert comm.all_reduce(x, case.op, out=out) is out
        again = apart
    else:
        assert comm.broadcast(x, case.root) is x
        return run.values(x)
    got = run.values(out)
    assert run.values(again).tobytes() == got.tobytes(), "without out the result differs"
    return got.reshape(comm.size, *x.shape) if case.operator == "all_gather" else got
