"""Every golden case of the all-to-all operators on living ranks, bit for bit: both levels, kinds of
memory, processes as well as threads.

One run_ranks per combination; the ranks live through all cases.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from collops.golden.cases import Case, all_cases, struct_fields
from collops.golden.data.dtypes import DTYPES, differs
from once import compute, expected, inputs

import collops
from collops.testing import run_ranks

POISON = 0xA5
STRUCTS: dict[str, type[Any]] = {
    "all_to_all": collops.AllToAllParam,
    "all_to_all_v": collops.AllToAllVParam,
    "all_to_all_v_v2": collops.AllToAllVV2Param,
}


class Run(NamedTuple):
    """What one run of all cases varies."""

    ranks: int
    memory: str = "plain"
    threads: bool = False


RUNS = [
    Run(2),
    Run(3, "window"),
    Run(3, "unaligned"),
    Run(7),
    Run(3, threads=True),
    Run(4, "window", threads=True),
]


@lru_cache
def cases_of(operator: str, ranks: int) -> tuple[Case, ...]:
    """The cases that ATB can state: of the V operators those in which every rank receives."""
    return tuple(case for case in all_cases(operator, rank_sizes=(ranks,)) if is_stated(case))


def is_stated(case: Case) -> bool:
    return case.operator == "all_to_all" or 0 not in case.rows


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


def as_real(array: Any, dtype: str) -> Any:
    return array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array


def python_fields(case: Case, rank: int) -> dict[str, Any]:
    """The struct's own fields by their names in Python."""
    names = {"sendCounts": "send_counts", "recvCounts": "recv_counts"}
    return {names.get(key, key): value for key, value in struct_fields(case, rank).items()}


def execute(comm: collops.Communicator, case: Case, run: Run) -> Any:
    fields: dict[str, Any] = {"backend": "shm", "rank": comm.rank, "rank_root": case.root}
    if run.threads:
        fields |= {"rank_size": comm.size, "comm_mode": collops.COMM_MULTI_THREAD}
    else:
        fields |= {"hccl_comm": comm}
    op = collops.Operation(STRUCTS[case.operator](**fields, **python_fields(case, comm.rank)))
    given, *others = inputs(case)[comm.rank].values()
    given = as_real(given, case.dtype)
    x = memory_for(comm, run.memory, given.shape, given.dtype)
    x[...] = given
    [described] = op.infer_shape([x, *others])
    out = memory_for(comm, run.memory, described.shape, given.dtype)
    size = op.get_workspace_size([x, *others], [out])
    assert size == (x.nbytes if case.transpose else 0)
    op.execute([x, *others], [out], memory_for(comm, run.memory, (size,), np.uint8))
    assert x.tobytes() == given.tobytes(), "x was changed"
    return out


def all_results(rank: int, operator: str, run: Run) -> list[Any]:
    """This rank's result of every case, as plain numpy can hold it."""
    comm = collops.init()
    results = []
    for case in cases_of(operator, run.ranks):
        got = np.array(execute(comm, case, run))
        results.append(got.view(np.uint16) if case.dtype == "bfloat16" else got)
    return results


def problem_of(case: Case, rank: int, got: Any, want: Any) -> str | None:
    """What is wrong with a rank's result, or None."""
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
    cases = cases_of(operator, run.ranks)
    assert len(cases) > 20
    compute(cases)
    results = run_ranks(all_results, run.ranks, operator, run, threads=run.threads)
    found = []
    for number, case in enumerate(cases):
        wanted = expected(case)
        for rank, want in enumerate(wanted):
            found.append(problem_of(case, rank, results[rank][number], want))
    problems = [problem for problem in found if problem]
    assert not problems, "\n".join(problems[:20])


def test_the_cases_cover_what_they_should() -> None:
    for operator in STRUCTS:
        cases = cases_of(operator, 4)
        assert {case.dtype for case in cases} == set(DTYPES)
        assert {len(case.x_shapes[0]) for case in cases} == set(range(1, 9))
        assert any(np.prod(case.x_shapes[0]) > 50_000 for case in cases)
    v_cases = all_cases("all_to_all_v", rank_sizes=(4,))
    assert any(0 in case.counts and is_stated(case) for case in v_cases)
    assert any(not is_stated(case) for case in v_cases)


def test_a_wrong_element_is_found() -> None:
    case = cases_of("all_to_all_v", 2)[0]
    want = expected(case)[1]
    wrong = want.copy()
    wrong.reshape(-1).view(np.uint8)[0] ^= 1
    assert "1 of" in str(problem_of(case, 1, wrong, want))
