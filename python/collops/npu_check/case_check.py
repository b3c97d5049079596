"""Runs golden's smallest case of one operator on the backend hccl; a program of its own."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from collops.core import core
from collops.golden.case_files import write_cases
from collops.golden.cases import OPERATORS, all_cases, inputs
from collops.golden_run.backends import check_replacement
from collops.golden_run.jobs import read_jobs
from collops.golden_run.pool import Pools
from collops.golden_run.verdict import judge
from collops.npu_check.child import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.golden.cases import Case
    from collops.golden_run.calls import Call
    from collops.golden_run.rank import Report

_FUSED = "linear_parallel"
_FUSED_TYPES = 5


def backend_name() -> str:
    """The backend whose tensors lie on an NPU."""
    [name] = [str(name) for name, _, memory, _ in core().backends() if memory == "npu"]
    return name


def check_names() -> list[str]:
    """Every operator of golden; LinearParallel once for each of its types."""
    names = []
    for operator in OPERATORS:
        many = operator == _FUSED
        names += [f"{operator}.{number}" for number in range(_FUSED_TYPES)] if many else [operator]
    return names


def smallest_case(name: str, ranks: int) -> Case | None:
    """The case of a check with the fewest elements, some of them on every rank, of a float type.

    The V operators have blocks of several sizes: with equal ones they are other calls of HCCL.
    """
    operator, _, number = name.partition(".")
    cases = [
        case
        for case in all_cases(operator, rank_sizes=(ranks,))
        if case.dtype in ("float16", "float32")  # every SoC moves and adds them
        and (not number or (case.linear is not None and case.linear.type == int(number)))
    ]
    sizes = {case.id: [next(iter(own.values())).size for own in inputs(case)] for case in cases}
    full = [case for case in cases if min(sizes[case.id]) > 0]
    uneven = [case for case in full if len(set(case.counts)) > 1]
    return min(uneven or full or cases, key=lambda case: sum(sizes[case.id]), default=None)


def run_case(case: Case, timeout: float) -> dict[str, str]:
    """Runs a case on ranks, and says whether it passed."""
    with tempfile.TemporaryDirectory() as folder:
        [job] = read_jobs([write_cases([case], Path(folder))])
        if job.call is None:
            return {"state": "not supported", "text": job.reason}
        with Pools({"COLLOPS_BACKEND": backend_name()}) as pools:
            pool = pools.of(job.call)
            pool.submit(job.call)
            reports = pool.collect(timeout)
        return outcome(job.call, reports)


def outcome(call: Call, reports: Sequence[Report]) -> dict[str, str]:
    """The state of a check and its text, from the reports of the ranks."""
    taking = [report for report in reports if report.took_part]
    refused = [report for report in taking if report.name == "ERROR_UNSUPPORTED"]
    if refused and len(refused) == len(taking):
        return {"state": "not supported", "text": refused[0].message}
    verdict = judge(call, reports)
    return {"state": "passed" if verdict.passed else "FAILED", "text": verdict.text}


def main() -> None:
    """Runs the check that the arguments name, and tells its outcome."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    try:
        check_replacement(backend_name())
    except ValueError as problem:
        tell({"state": "FAILED", "text": str(problem)})
        return
    try:
        case = smallest_case(options.name, options.ranks)
    except ValueError as problem:  # messages need two ranks
        tell({"state": "not supported", "text": str(problem)})
        return
    if case is None:
        text = f"golden has no case for {options.ranks} ranks"
        tell({"state": "not supported", "text": text})
        return
    tell({**run_case(case, options.seconds), "case": case.id})


if __name__ == "__main__":
    main()
