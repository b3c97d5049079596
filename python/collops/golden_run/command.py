"""The arguments of ``collops golden run``, and what it prints."""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from collops.errors import Error
from collops.golden.plot import require_matplotlib
from collops.golden_run.backends import check_replacement
from collops.golden_run.drawing import first_wrong_output
from collops.golden_run.jobs import Job, read_jobs
from collops.golden_run.junit import write_junit
from collops.golden_run.outcome import FAILED, Summary
from collops.golden_run.progress import Progress
from collops.golden_run.runner import Runner
from collops.golden_run.verdict import Allowance

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "collops golden run"


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {PROGRAM} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the cases: 0 all is well, 1 something failed or nothing passed, 2 a wrong request."""
    options = _parser().parse_args(arguments)
    try:
        return run(options)
    except (ValueError, OSError, Error) as problem:
        print(f"{PROGRAM}: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return 130


def run(options: argparse.Namespace) -> int:
    """Runs what the arguments say and returns the exit status.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: the arguments do not fit together, or the backend cannot run here.
    """
    check_replacement(options.backend)
    if options.plot:
        require_matplotlib(options.plot)
    jobs = read_jobs(
        options.files, text=options.filter, seed=options.seed, same_data=options.same_data
    )
    runner = Runner(
        {"COLLOPS_BACKEND": options.backend},
        timeout=options.timeout,
        allowance=Allowance(atb=options.tolerance == "atb"),
        draw=first_wrong_output(options.plot) if options.plot else None,
    )
    summary = run_jobs(runner, jobs)
    if options.junit:
        write_junit(summary, options.junit)
    print(summary.closing_line())
    problem = summary.problem(options.max_skipped)
    if problem:
        print(f"{PROGRAM}: {problem}", file=sys.stderr)
    return 1 if problem else 0


def run_jobs(runner: Runner, jobs: Sequence[Job]) -> Summary:
    """Runs the jobs, prints what is not as it should be, and returns all outcomes."""
    summary, progress = Summary(), Progress(len(jobs))
    begin = time.perf_counter()
    for outcome in runner.run(jobs):
        summary.outcomes.append(outcome)
        lines = outcome.lines()
        if lines:
            progress.clear()
            print(lines, flush=True)
        progress.show(len(summary.outcomes), summary.count(FAILED))
    progress.clear()
    summary.seconds = time.perf_counter() - begin
    return summary


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text}")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, got {text}")
    return value


def _parser() -> _Parser:
    parser = _Parser(
        prog=PROGRAM,
        description="Runs cases on living ranks, which are processes on this host, and compares "
        "what they make with golden.",
        epilog="Status: 0 all is well, 1 something failed or nothing passed, 2 a wrong request.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("files", metavar="FILE", nargs="+", type=Path, help="ATB's .csv, a manifest.json or .npz")
    add("--backend", metavar="NAME", default="shm", help="as COLLOPS_BACKEND (default shm)")
    add("--filter", metavar="TEXT", default="", help="part of a case's name, or numbers: 3,5-9")
    add("--seed", metavar="N", type=int, default=0, help="seed of generated data (default 0)")
    add("--timeout", metavar="S", type=_seconds, default=60.0, help="seconds per case (60)")
    add("--max-skipped", metavar="N", type=_count, help="fail if more cases are skipped")
    add("--junit", metavar="FILE", type=Path, help="write the outcomes as JUnit XML")
    add("--same-data", action="store_true", help="give every rank the data of rank 0, as ATB does")
    add(
        "--tolerance",
        choices=("golden", "atb"),
        default="golden",
        help="golden (bit for bit where the result is exact, the default), or ATB's tables",
    )
    add("--plot", metavar="FILE.png", type=Path, help="draw the first output that is wrong")
    return parser
