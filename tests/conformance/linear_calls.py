"""LinearParallel: golden's cases with both engines, which must give the same bits."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np
from collops.golden.cases import Case, all_cases
from collops.golden.data.dtypes import name_of, widened

import collops
from collops.tensors import numpy_type
from tests.conformance.once import all_outputs, inputs
from tests.conformance.operator_runs import golden_bounds
from tests.conformance.runs import Run, as_real
from tests.linear_case import param_of

# The longest k of aclnnQuantMatmulV5.
NPU_K = 65535


@lru_cache
def cases_of(run: Run) -> tuple[Case, ...]:
    return tuple(case for case in _every(run) if _kind(case) == "plain")


@lru_cache
def quantised_cases(run: Run) -> tuple[Case, ...]:
    """The k of NPUs is limited where x is int8, too."""
    return tuple(
        case
        for case in _every(run)
        if _kind(case) == "quantised" and not (run.memory == "npu" and case.x_shapes[0][-1] > NPU_K)
    )


@lru_cache
def expert_cases(run: Run) -> tuple[Case, ...]:
    return tuple(case for case in _every(run) if _kind(case) == "experts")


@lru_cache
def leaves_cases(run: Run) -> tuple[Case, ...]:
    return tuple(case for case in _every(run) if _kind(case) == "leaves")


def _every(run: Run) -> list[Case]:
    return all_cases("linear_parallel", rank_sizes=(run.ranks,))


def _kind(case: Case) -> str:
    """What a run must support: plain products, quantised ones, experts, or leaves."""
    assert case.linear is not None
    if case.linear.has_experts:
        return "experts"
    if case.linear.sum_leaves:
        return "leaves"
    return "quantised" if case.linear.is_quantised else "plain"


def bounds(case: Case, run: Run) -> Any:
    """Golden's; HCCL adds up in an order of its own, so what is exact may be rounded elsewhere."""
    found = golden_bounds(case, run)
    if found is not None or run.sums_in_order or case.dtype != "int8":
        return found
    made = [widened(own[0], name_of(own[0])).astype(np.float64) for own in all_outputs(case)]
    most = max(np.abs(one[np.isfinite(one)]).max(initial=0) for one in made)
    unit = 2.0**-10 if name_of(all_outputs(case)[0][0]) == "float16" else 2.0**-7
    return [unit * np.abs(one) + case.rank_size**2 * 2.0**-23 * most for one in made]


def call_engine(comm: collops.Communicator, case: Case, run: Run, fused: bool) -> list[Any]:
    """The outputs of one call."""
    arrays = [as_real(tensor, name_of(tensor)) for tensor in inputs(case)[comm.rank].values()]
    # A table of counts and a length stay on the host.
    on_host = len(arrays) - 2 if run.on_device and _kind(case) == "experts" else len(arrays)
    ins = [run.place(comm, array) for array in arrays[:on_host]]
    ins += [array.copy() for array in arrays[on_host:]]
    if not run.threads and not run.on_device:  # threads share their environment
        os.environ["COLLOPS_FUSED"] = str(int(fused))
    operation = collops.Operation(param_of(case, comm.rank, **run.named_param(comm)))
    descs = operation.infer_shape(ins)
    outs = [run.poisoned(comm, desc.shape, numpy_type(desc.dtype)) for desc in descs]
    before = [run.values(tensor).tobytes() for tensor in ins[:on_host]]
    run.execute(comm, operation, ins, outs)
    after = [run.values(tensor).tobytes() for tensor in ins[:on_host]]
    assert after == before, f"{case.id}: an input was changed"
    return [run.values(out) for out in outs]


def call(comm: collops.Communicator, case: Case, run: Run) -> list[Any]:
    fused = call_engine(comm, case, run, fused=True)
    if not run.threads and not run.on_device:
        pipeline = call_engine(comm, case, run, fused=False)
        same = [a.tobytes() == b.tobytes() for a, b in zip(fused, pipeline, strict=True)]
        assert all(same), f"{case.id}: the engines' bits differ"
    return fused
