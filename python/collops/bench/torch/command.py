"""``collops bench torch``: what it measures, prints and writes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch.distributed as dist

from collops.bench.arguments import threads
from collops.bench.launch import RanksFailedError, launch
from collops.bench.plot import require_matplotlib
from collops.bench.shared_cores import load_average, shared_cores
from collops.bench.torch.plot import save_plot
from collops.bench.torch.report import HEAD, cells, row_of
from collops.bench.torch.request import TorchRequest, points_of
from collops.bench.torch_arguments import (
    ITERATIONS,
    QUICK_ITERATIONS,
    QUICK_SIZES,
    SIZES,
    parser,
)
from collops.core import core, usable_cores
from collops.terminal import Progress
from collops.terminal.arguments import status_of_command
from collops.terminal.installation import command_line, installation_line
from collops.terminal.tables import markdown_table

_PROGRAM = [sys.executable, "-m", "collops.bench.torch.rank_program"]


def main(arguments: Sequence[str]) -> int:
    """Measures and prints; 0: success, 1: ranks failed or results differ, 2: wrong arguments."""
    options = parser().parse_args(arguments)
    return status_of_command("collops bench torch", lambda: run(options))


def run(options: argparse.Namespace) -> int:
    """Runs the benchmark that the options describe, and returns the exit status.

    Raises:
        OSError: a file cannot be written.
        ValueError: the options do not fit together.
    """
    sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    points = points_of(options.calls, options.ways, sizes)
    if not points:
        raise ValueError(f"torch has no functional form of {', '.join(options.calls)}")
    if options.plot:
        require_matplotlib(options.plot)
    if options.json:
        options.json.write_text("")
    core()  # raises at once if the core cannot be loaded
    iterations = options.iterations or (QUICK_ITERATIONS if options.quick else ITERATIONS)
    request = TorchRequest(points, iterations, threads())
    rows: list[dict[str, Any]] = []
    spreads: list[float] = []
    (cores, _), load, failed = usable_cores(), load_average(), False
    progress = Progress(len(points))
    progress.show(0)
    try:
        for record in launch(request, options.ranks, None, program=_PROGRAM):
            rows.append(row_of(record))
            if options.ranks <= cores:
                spreads.append(np.percentile(record["collops_s"], 95) / min(record["collops_s"]))
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
        print(markdown_table(HEAD, [cells(row) for row in rows]))
        print(f"\nMPI: {_mpi()}")
        if options.plot:
            save_plot(options.plot, rows)
            print(f"\nplot: {options.plot}")
        if warning := shared_cores(load, spreads):
            print(f"\nWarning: {warning}.")
        print(f"\nFor an issue: {command_line()}; {installation_line()}")
    return 1 if failed or not all(row["equal"] for row in rows) else 0


def _mpi() -> str:
    if dist.is_mpi_available():
        return "not measured, although this torch has it: use collops bench all_gatherv"
    return "not measured: this torch is built without it (torch.distributed.is_mpi_available())"
