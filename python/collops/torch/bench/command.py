"""``collops bench torch``: its options, and what it prints and writes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist

from collops.bench.arguments import Parser, count, counts, threads, words
from collops.bench.launch import RanksFailedError, launch
from collops.bench.plot import require_matplotlib
from collops.bench.tables import table
from collops.core import core
from collops.terminal import Progress
from collops.terminal.installation import command_line, installation_line
from collops.torch.bench.plot import save_plot
from collops.torch.bench.report import HEAD, cells, row_of
from collops.torch.bench.request import CALLS, WAYS, TorchRequest, points_of

_PROGRAM = [sys.executable, "-m", "collops.torch.bench.rank_program"]
_SIZES = (64, 4 << 10, 64 << 10, 1 << 20, 64 << 20)
_QUICK_SIZES = (64, 64 << 10)
_ITERATIONS, _QUICK_ITERATIONS = 11, 3
_DESCRIPTION = """
Calls of torch.distributed on a collops group and on gloo's, in turn on the same ranks in one run.
Both groups are in one process. collops's calls run on pinned ranks, gloo's on all cores behind a
barrier that sleeps. collops's time is the median of the rounds, gloo's the 10th percentile.
Training steps (ddp, fsdp2, fsdp2_windows) are also measured on each rank alone: the time by which
they take longer with all ranks is the share of communication ("comm" in the table).
"""


def main(arguments: Sequence[str]) -> int:
    """Measures and prints; 0: success, 1: ranks failed or results differ, 2: wrong arguments."""
    options = parser().parse_args(arguments)
    try:
        return run(options)
    except (ValueError, OSError) as problem:
        print(f"collops bench torch: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("collops bench torch: interrupted", file=sys.stderr)
        return 130


def run(options: argparse.Namespace) -> int:
    """Runs the benchmark that the options describe, and returns the exit status.

    Raises:
        OSError: a file cannot be written.
        ValueError: the options do not fit together.
    """
    sizes = options.sizes or (_QUICK_SIZES if options.quick else _SIZES)
    points = points_of(options.calls, options.ways, sizes)
    if not points:
        raise ValueError(f"torch has no functional form of {', '.join(options.calls)}")
    if options.plot:
        require_matplotlib(options.plot)
    if options.json:
        options.json.write_text("")
    core()  # raises at once if the core cannot be loaded
    iterations = options.iterations or (_QUICK_ITERATIONS if options.quick else _ITERATIONS)
    request = TorchRequest(points, iterations, threads())
    rows: list[dict[str, Any]] = []
    failed = False
    progress = Progress(len(points))
    progress.show(0)
    try:
        for record in launch(request, options.ranks, None, program=_PROGRAM):
            rows.append(row_of(record))
            progress.show(len(rows), f"{rows[-1]['call']} done")
            if options.json:
                with options.json.open("a") as lines:
                    lines.write(json.dumps(rows[-1]) + "\n")
    except RanksFailedError as problem:
        failed = True
        progress.clear()
        print(f"collops bench torch: the ranks failed:\n{problem}", file=sys.stderr)
    progress.clear()
    if rows:
        print(table(HEAD, [cells(row) for row in rows]))
        print(f"\nMPI: {_mpi()}")
        if options.plot:
            save_plot(options.plot, rows)
            print(f"\nplot: {options.plot}")
        print(f"\nFor an issue: {command_line()}; {installation_line()}")
    return 1 if failed or not all(row["equal"] for row in rows) else 0


def _mpi() -> str:
    if dist.is_mpi_available():
        return "not measured, although this torch has it: use collops bench all_gather_v"
    return "not measured: this torch is built without it (torch.distributed.is_mpi_available())"


def parser() -> Parser:
    """The parser of the command."""
    parser = Parser(
        prog="collops bench torch",
        description=_DESCRIPTION,
        epilog="calls:\n" + "\n".join(f"  {name:22} {what}" for name, what in CALLS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--ranks", type=count, default=2, metavar="N", help="number of ranks on this host (2)")
    add(
        "--calls",
        type=lambda text: words(text, tuple(CALLS)),
        default=tuple(CALLS),
        metavar="LIST",
        help="some of the calls below (all)",
    )
    add(
        "--ways",
        type=lambda text: words(text, WAYS),
        default=WAYS,
        metavar="LIST",
        help=f"some of {', '.join(WAYS)} (all); dp_attention and training steps do not use them",
    )
    add(
        "--sizes",
        type=lambda text: counts(text, ","),
        metavar="LIST",
        help=f"bytes of each rank's input ({','.join(map(str, _SIZES))})",
    )
    add("--iterations", type=count, metavar="N", help=f"measured rounds ({_ITERATIONS})")
    add("--quick", action="store_true", help="two sizes, few rounds, to check that all works")
    add("--json", type=Path, metavar="FILE", help="write one JSON object per row")
    add("--plot", type=Path, metavar="FILE.png", help="draw the times by size")
    return parser
