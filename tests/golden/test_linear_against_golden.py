"""Every golden case of LinearParallel on living ranks: windows and plain memory, both engines,
each instruction set, one thread and two, processes and threads.

Exact cases bit for bit, random ones within golden's bound; and both engines give the same bits.
One run_ranks per combination; the ranks live through all cases.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from collops.golden.cases import Case, all_cases
from collops.golden.data.dtypes import differs
from collops.golden.operators.linear_parallel.reference import widened
from once import all_outputs, bounds, compute, inputs

import collops
from collops.core import core
from collops.testing import run_ranks

POISON = 0xA5


class Run(NamedTuple):
    """What one run of all cases varies."""

    ranks: int
    memory: str = "plain"
    isa: str = ""  # "": the best here
    num_threads: int = 1
    threads: bool = False


RUNS = [
    Run(2),
    Run(2, "window", isa="avx2"),
    Run(2, "unaligned", isa="portable"),
    Run(3, "window"),
    Run(3, "window", threads=True),
    Run(4, num_threads=2),
    Run(6, "window"),
    Run(7, "unaligned"),
]


@lru_cache
def cases_of(ranks: int) -> tuple[Case, ...]:
    return tuple(all_cases("linear_parallel", rank_sizes=(ranks,)))


def array_of(comm: collops.Communicator, memory: str, shape: Any, dtype: Any) -> Any:
    """Poisoned memory of the run's kind."""
    if memory == "window":
        array = comm.empty(shape, dtype)
    elif memory == "unaligned":
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        array = np.empty(count + 1, np.uint8)[1:].view(dtype).reshape(shape)
    else:
        array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[...] = POISON
    return array


def param_of(comm: collops.Communicator, case: Case, threads: bool) -> Any:
    call = case.linear
    assert call is not None
    grid = collops.TwoDimTPInfo(
        ag_dim=call.ag_dim, rs_dim=call.rs_dim, inner_dim_is_ag=int(call.inner_dim_is_ag)
    )
    return collops.LinearParallelParam(
        rank=comm.rank,
        rank_size=comm.size,
        backend="shm",
        comm_mode=collops.COMM_MULTI_THREAD if threads else collops.COMM_MULTI_PROCESS,
        type=call.type,
        trans_weight=call.trans_weight,
        has_residual=call.has_residual,
        keep_intermediate=call.keep_intermediate,
        two_dim_tp_info=grid,
        gather_rows=list(call.gather_rows[comm.rank]) if call.gather_rows else [],
        scatter_rows=list(call.scatter_rows[comm.rank]) if call.scatter_rows else [],
    )


def run_engine(comm: collops.Communicator, case: Case, run: Run, fused: bool) -> list[Any]:
    """The outputs of one call."""
    given = inputs(case)[comm.rank]
    dtype = ml_dtypes.bfloat16 if case.dtype == "bfloat16" else np.dtype(case.dtype)
    ins = []
    for tensor in given.values():
        ins.append(array_of(comm, run.memory, tensor.shape, dtype))
        ins[-1][...] = tensor.view(dtype)
    if not run.threads:  # threads share their environment
        os.environ["COLLOPS_FUSED"] = str(int(fused))
    operation = collops.Operation(param_of(comm, case, run.threads))
    descs = operation.infer_shape(ins)
    outs = [array_of(comm, run.memory, desc.shape, dtype) for desc in descs]
    scratch = np.full(operation.get_workspace_size(ins, outs), POISON, np.uint8)
    before = [tensor.tobytes() for tensor in ins]
    operation.execute(ins, outs, scratch)
    assert [tensor.tobytes() for tensor in ins] == before, "an input was changed"
    return outs


def check(case: Case, rank: int, outs: list[Any], where: str) -> None:
    allowed = bounds(case)
    for number, (out, want) in enumerate(zip(outs, all_outputs(case)[rank], strict=True)):
        got = out.view(np.uint16) if case.dtype == "bfloat16" else out
        assert got.shape == want.shape
        if allowed is None or number > 0:
            wrong = differs(got, want, case.dtype)
        else:
            off = np.abs(widened(got, case.dtype).astype(np.float64) - widened(want, case.dtype))
            wrong = ~(off <= allowed[rank])
        assert not wrong.any(), f"{case.id} {where}: {np.argwhere(wrong)[:3].tolist()}"


def run_all(rank: int, run: Run) -> int:
    mode = {"comm_mode": collops.COMM_MULTI_THREAD} if run.threads else {}
    with collops.init(**mode) as comm:
        for case in cases_of(run.ranks):
            fused = run_engine(comm, case, run, fused=True)
            check(case, rank, fused, "fused")
            if run.threads:
                continue
            pipeline = run_engine(comm, case, run, fused=False)
            same = [a.tobytes() == b.tobytes() for a, b in zip(fused, pipeline, strict=True)]
            assert all(same), f"{case.id}: the engines' bits differ"
    return len(cases_of(run.ranks))


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_golden(run: Run) -> None:
    if run.isa and run.isa not in core().kernels()[1]:
        pytest.skip(f"this CPU has no {run.isa}")
    env = {"COLLOPS_NUM_THREADS": str(run.num_threads)}
    if run.isa:
        env["COLLOPS_ISA"] = run.isa
    compute(cases_of(run.ranks))
    done = run_ranks(run_all, run.ranks, run, timeout=100, env=env, threads=run.threads)
    assert done == [len(cases_of(run.ranks))] * run.ranks
