"""The demo's command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from collops.demo.runs import (
    Outcome,
    run_all_gather_v,
    run_grid,
    run_layer,
    run_plain,
    run_reduce_scatter_v,
    table,
)
from collops.errors import Error
from collops.terminal import Progress
from collops.terminal.arguments import Parser
from collops.testing import RankErrors

PROGRAM = "collops demo"


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Runs everything and prints the table: 0 all equal, 1 something differs, 2 cannot run."""
    options = parser(program).parse_args(arguments)
    print("running: a few seconds; times are medians on the slowest rank", flush=True)
    try:
        outcomes = _outcomes()
    except RankErrors as failed:
        reason = next(iter(failed.errors.values()))
        if not isinstance(reason, Error):
            raise
        print(f"{program}: {reason}", file=sys.stderr)
        return 2
    if options.plant:
        print(_plant(outcomes[-2], rank=1, position=5))
    print(table(outcomes))
    differing = sum(bool(outcome.findings()) for outcome in outcomes)
    if differing == 0:
        print("all equal to golden")
    else:
        print(f"{differing} result{'s differ' if differing > 1 else ' differs'}")
    return 1 if differing else 0


def _outcomes() -> list[Outcome]:
    """Runs everything, and shows on a terminal how far it is."""
    runs: list[Callable[[], Outcome | list[Outcome]]] = [run_layer, run_grid, run_plain]
    runs += [run_all_gather_v, run_reduce_scatter_v]
    progress = Progress(len(runs))
    outcomes: list[Outcome] = []
    try:
        for done, run in enumerate(runs):
            progress.show(done)
            found = run()
            outcomes += found if isinstance(found, list) else [found]
    finally:
        progress.clear()
    return outcomes


def parser(program: str = PROGRAM) -> Parser:
    """The parser of the command, which is called by these words."""
    parser = Parser(
        prog=program,
        description="Runs a transformer layer over a batch that does not divide by its 4 ranks, "
        "an MLP on a grid of 2 x 2 ranks, two collectives, and the operators of the ATB level with "
        "2 ranks. Compares every rank's result with golden or with one process. Times are the "
        "median of some calls, on the slowest rank.",
        epilog="Exit status: 0 all equal, 1 a result differs, 2 the demo cannot run here.",
    )
    parser.add_argument(
        "--break",
        dest="plant",
        action="store_true",
        help="change one element of one rank's result after the run: the table must report it",
    )
    return parser


def _plant(outcome: Outcome, rank: int, position: int) -> str:
    """Changes one element of an operator's result and returns the operator; the table shows it."""
    outcome.results[rank].flat[position] += 1
    return f"--break: changed one element of the {outcome.operator} result of rank {rank}"


if __name__ == "__main__":
    sys.exit(main(program="python -m collops.demo"))
