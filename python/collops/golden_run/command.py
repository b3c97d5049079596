"""The arguments of ``collops golden run``, and what it prints."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from collops.golden.compare.plot import require_matplotlib
from collops.golden_run.backends import check_replacement, is_on_device
from collops.golden_run.jobs import Job, read_jobs
from collops.golden_run.pool import LaunchedRanks, default_backend, launched
from collops.golden_run.report import About, write_junit, write_page
from collops.golden_run.runner import FAILED, Runner, Summary
from collops.golden_run.verdict import MOST_KEPT, Drawings
from collops.terminal import Progress
from collops.terminal.arguments import Parser, seconds, status_of_command, whole_number
from collops.terminal.installation import command_line, installation_line, is_installed

PROGRAM = "collops golden run"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the cases; 0: all passed, 1: one failed or none passed, 2: wrong arguments."""
    options = parser().parse_args(arguments)
    return status_of_command(PROGRAM, lambda: run(options))


def run(options: argparse.Namespace) -> int:
    """Runs the cases that the arguments choose and returns the exit status.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: the arguments do not fit together, or the backend cannot run here.
    """
    backend = _backend(options.backend)
    _check_files(options)
    jobs = read_jobs(
        options.files, text=options.filter, seed=options.seed, same_data=options.same_data
    )
    ranks = None
    if launched():
        # Reports are arrays of the CPU, on whatever device the cases run.
        os.environ["COLLOPS_BACKEND"] = default_backend() if is_on_device(backend) else backend
        ranks = LaunchedRanks(options.timeout)
        os.environ["COLLOPS_BACKEND"] = backend
        jobs = ranks.chosen(jobs)
    can_draw = is_installed("matplotlib")
    drawings = Drawings(options.plot, keeps=options.html is not None and can_draw)
    runner = Runner(
        {"COLLOPS_BACKEND": backend},
        timeout=options.timeout,
        atb=options.tolerance == "atb",
        draw=drawings if options.plot or (options.html and can_draw) else None,
        launched=ranks,
    )
    if ranks is not None and ranks.rank != 0:
        for _ in runner.run(jobs):
            pass  # rank 0 has the reports
        return 0
    for warning in filter(None, (job.warning for job in jobs)):
        print(f"{PROGRAM}: warning: {warning}", file=sys.stderr)
    begun = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    summary = run_jobs(runner, jobs)
    installed = f"{installation_line()}, backend {backend}"
    print("".join(f"{line}\n" for line in summary.skipped_lines()), end="")
    try:
        if options.plot:
            print(f"plot: {options.plot if drawings.written else 'none, no output was wrong'}")
        if options.junit:
            write_junit(summary, options.junit)
        if options.html:
            about = About(command_line(), installed, begun, _notes(drawings, can_draw))
            write_page(summary, options.html, about)
            print(f"report: {options.html}")
    finally:  # what was found counts, even where a file cannot be written
        print(summary.closing_line(), flush=True)
    problem = summary.problem(options.max_skipped)
    if problem:
        print(f"{PROGRAM}: {problem}\nfor an issue: {installed}", file=sys.stderr)
    return 1 if problem else 0


def _notes(drawings: Drawings, can_draw: bool) -> tuple[str, ...]:
    """What the page says about plots that are missing."""
    if not can_draw:
        return ("There are no plots: they need matplotlib.",)
    return (f"There are plots of the first {MOST_KEPT} wrong outputs.",) if drawings.is_full else ()


def run_jobs(runner: Runner, jobs: Sequence[Job]) -> Summary:
    """Runs the jobs, prints the failed ones, and returns all outcomes."""
    summary, progress = Summary(), Progress(len(jobs))
    begin = time.perf_counter()
    for outcome in runner.run(jobs):
        summary.outcomes.append(outcome)
        lines = outcome.lines()
        if lines:
            progress.clear()
            print(lines, flush=True)
        done = len(summary.outcomes)
        progress.show(done, f"{summary.count(FAILED)} failed, {progress.rate(done):.0f}/s")
    progress.clear()
    summary.seconds = time.perf_counter() - begin
    return summary


def _backend(given: str | None) -> str:
    """The backend of the option, else of COLLOPS_BACKEND, else shm on one host and ucx on more."""
    variable = os.environ.get("COLLOPS_BACKEND", "")
    backend = given or variable or default_backend()
    try:
        check_replacement(backend)
    except ValueError as problem:
        if given or not variable:
            raise
        raise ValueError(f"COLLOPS_BACKEND={variable}: {problem}") from None
    return backend


def _check_files(options: argparse.Namespace) -> None:
    """Raises ValueError before the run if a file of the options could not be written after it."""
    for option in ("junit", "plot", "html"):
        path = getattr(options, option)
        if path is not None:
            _check_writable(f"--{option}", path)
    if options.plot:
        require_matplotlib(options.plot)


def _check_writable(option: str, path: Path) -> None:
    """Raises ValueError if the path names no file that can be written."""
    if not path.parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise ValueError(f"{option} {path}: is a folder; name a file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{option} {path}: cannot be written")


def parser() -> Parser:
    """The parser of the command."""
    parser = Parser(
        prog=PROGRAM,
        description="Runs cases on several ranks (processes on this host, or the ranks of "
        "collops run), and compares their outputs with golden's.",
        epilog="Exit status: 0 success, 1 a case failed or none passed, 2 wrong arguments.",
    )
    add = parser.add_argument
    add(
        "files",
        metavar="FILE",
        nargs="+",
        type=Path,
        help="ATB's .csv, a manifest.json or .npz, or a folder: every .csv and manifest.json in it",
    )
    add(
        "--backend",
        metavar="NAME",
        help="a backend, or replacements as in COLLOPS_BACKEND (default: COLLOPS_BACKEND; if that "
        "is not set, shm on one host and ucx on several)",
    )
    add(
        "--filter",
        metavar="TEXT",
        default="",
        help="run only cases whose name contains TEXT, or these CaseNums: 3,5-9",
    )
    add("--seed", metavar="N", type=int, default=0, help="seed of generated data (default 0)")
    add("--timeout", metavar="S", type=seconds, default=60.0, help="seconds per case (60)")
    add("--max-skipped", metavar="N", type=whole_number(0), help="fail if more than N are skipped")
    add("--junit", metavar="FILE", type=Path, help="write the outcomes as JUnit XML")
    add(
        "--html",
        metavar="FILE.html",
        type=Path,
        help="write an HTML page: a summary, a row per case, the reason and plot of each failure",
    )
    add("--same-data", action="store_true", help="give every rank the data of rank 0, as ATB does")
    add(
        "--tolerance",
        choices=("golden", "atb"),
        default="golden",
        help="golden (the default): bit for bit where the result is exact; atb: ATB's tables",
    )
    add("--plot", metavar="FILE.png", type=Path, help="draw the first wrong output")
    return parser
