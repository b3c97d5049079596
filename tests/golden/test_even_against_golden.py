"""Every golden case of the even collectives on living ranks, bit for bit: both levels, kinds of
memory, in place and not, processes as well as threads.

One run_ranks per combination; the ranks live through all cases.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from collops.golden.cases import Case, all_cases
from collops.golden.data.dtypes import DTYPES, REDUCE_DTYPES, differs
from once import compute, expected, inputs

import collops
from collops.testing import run_ranks

POISON = 0xA5
STRUCTS = {
    "all_gather": collops.AllGatherParam,
    "reduce_scatter": collops.ReduceScatterParam,
    "all_reduce": collops.AllReduceParam,
    "broadcast": collops.BroadcastParam,
}
ATB_OPS = ("", "sum", "max", "min", "prod")


class Run(NamedTuple):
    """What one run of all cases varies."""

    level: str
    ranks: int
    memory: str = "plain"
    in_place: bool = False  # of all_gather x is its block of the output, of all_reduce the output
    threads: bool = False


RUNS = [
    Run("atb", 2),
    Run("atb", 3, "window"),
    Run("atb", 3, "unaligned"),
    Run("atb", 4, "window", in_place=True),
    Run("atb", 7),
    Run("atb", 3, "window", threads=True),
    Run("plain", 1),
    Run("plain", 1, "window", in_place=True),
    Run("plain", 2, in_place=True),
    Run("plain", 3, "window"),
    Run("plain", 4, "unaligned", in_place=True),
    Run("plain", 3, "window", in_place=True, threads=True),
]


@lru_cache
def cases_of(operator: str, run: Run) -> tuple[Case, ...]:
    """The cases that a level can state: ATB has no avg, and an output of at least one row."""
    cases = all_cases(operator, rank_sizes=(run.ranks,))
    return tuple(case for case in cases if run.level == "plain" or case.op in ATB_OPS)


def memory_for(comm: collops.Communicator, memory: str, shape: Any, dtype: Any) -> Any:
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


class Tensors:
    """x and the output of one case on this rank; they may share memory where the run says so."""

    def __init__(self, comm: collops.Communicator, case: Case, run: Run) -> None:
        given = inputs(case)[comm.rank]["x"]
        dtype = ml_dtypes.bfloat16 if case.dtype == "bfloat16" else given.dtype
        shape = {
            "all_gather": (comm.size, *given.shape),
            "reduce_scatter": (case.rows[0], *given.shape[1:]),
        }.get(case.operator, given.shape)
        self.out = memory_for(comm, run.memory, shape, dtype)
        if run.in_place and case.operator == "all_reduce":
            self.x = self.out
        elif run.in_place and case.operator == "all_gather" and run.level == "plain":
            self.x = self.out[comm.rank]
        else:
            self.x = memory_for(comm, run.memory, given.shape, dtype)
        self.x[...] = given.view(dtype)
        self.before = self.x.tobytes()


def run_atb(comm: collops.Communicator, case: Case, run: Run) -> Any:
    fields: dict[str, Any] = {"backend": "shm", "rank": comm.rank, "rank_root": case.root}
    if run.threads:
        fields |= {"rank_size": comm.size, "comm_mode": collops.COMM_MULTI_THREAD}
    else:
        fields |= {"hccl_comm": comm}
    if case.op:
        field = "all_reduce_type" if case.operator == "all_reduce" else "reduce_type"
        fields[field] = case.op
    op = collops.Operation(STRUCTS[case.operator](**fields))
    tensors = Tensors(comm, case, run)
    outs = [] if case.operator == "broadcast" else [tensors.out]
    assert op.get_workspace_size([tensors.x], outs) == 0
    op.execute([tensors.x], outs)
    if not outs:
        return tensors.x
    if tensors.x is not tensors.out:
        assert tensors.x.tobytes() == tensors.before, "x was changed"
    return tensors.out


def run_plain(comm: collops.Communicator, case: Case, run: Run) -> Any:
    tensors = Tensors(comm, case, run)
    x, out = tensors.x, tensors.out
    if case.operator == "all_gather":
        flat = out.reshape(-1, *x.shape[1:])
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
        return x
    assert again.tobytes() == out.tobytes(), "without out the result differs"
    return out


def all_results(rank: int, operator: str, run: Run) -> list[Any]:
    """This rank's result of every case, as plain numpy can hold it."""
    comm = collops.init()
    execute = run_atb if run.level == "atb" else run_plain
    results = []
    for case in cases_of(operator, run):
        got = np.array(execute(comm, case, run))
        results.append(got.view(np.uint16) if case.dtype == "bfloat16" else got)
    return results


def problem_of(case: Case, rank: int, got: Any) -> str | None:
    """What is wrong with a rank's result, or None."""
    want = expected(case)[rank]
    if got.shape != want.shape:
        return f"{case.id} on rank {rank}: shape {got.shape}, not {want.shape}"
    wrong = differs(got, want, case.dtype)
    if not wrong.any():
        return None
    first = tuple(int(i[0]) for i in np.nonzero(wrong))
    return (
        f"{case.id} on rank {rank}: {int(wrong.sum())} of {wrong.size} elements differ, first at "
        f"{first}: {got[first]!r}, not {want[first]!r}"
    )


@pytest.mark.parametrize("run", RUNS, ids=lambda run: "-".join(map(str, run)))
@pytest.mark.parametrize("operator", STRUCTS)
def test_every_case_bit_for_bit(operator: str, run: Run) -> None:
    cases = cases_of(operator, run)
    assert len(cases) > 20
    compute(cases)
    results = run_ranks(all_results, run.ranks, operator, run, threads=run.threads)
    problems = [
        problem_of(case, rank, results[rank][number])
        for number, case in enumerate(cases)
        for rank in range(run.ranks)
    ]
    found = [problem for problem in problems if problem]
    assert not found, "\n".join(found[:20])


def test_the_cases_cover_what_they_should() -> None:
    for operator in STRUCTS:
        cases = cases_of(operator, Run("plain", 4))
        reduces = operator in ("reduce_scatter", "all_reduce")
        assert {case.dtype for case in cases} == set(REDUCE_DTYPES if reduces else DTYPES)
        ops = {"sum", "max", "min", "prod", "avg"} if reduces else {""}
        assert {case.op for case in cases} == ops
        dims = {len(case.x_shapes[0]) for case in cases}
        assert dims == set(range(1, 8 if operator == "all_gather" else 9))
        assert any(np.prod(case.x_shapes[0]) > 100_000 for case in cases)
    assert {case.root for case in cases_of("broadcast", Run("plain", 4))} == {0, 1, 2, 3}


def test_a_wrong_element_is_found() -> None:
    case = cases_of("all_reduce", Run("atb", 2))[0]
    wrong = expected(case)[1].copy()
    wrong.reshape(-1).view(np.uint8)[0] ^= 1
    assert "1 of" in str(problem_of(case, 1, wrong))
