"""``collops bench NAME``: measures an operator next to other libraries."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial

from collops.bench.arguments import parse, threads
from collops.bench.gpu.options import on_gpu
from collops.bench.gpu.start import RANK_PROGRAM, process_of_ranks
from collops.bench.gpu.torch_baselines import TorchBaselines
from collops.bench.launch import RanksFailedError, launch
from collops.bench.operator import Operator, Row
from collops.bench.operators import load
from collops.bench.peers.mpi_launcher import Mpi, find_mpis
from collops.bench.request import Request
from collops.bench.shared_cores import load_average, shared_cores
from collops.bench.start import Start, start_of
from collops.bench.tables import compared, point_table
from collops.core import core, usable_cores
from collops.terminal import Progress
from collops.terminal.arguments import status_of_command
from collops.terminal.installation import command_line, installation_line
from collops.terminal.tables import markdown_table


def main(name: str, arguments: Sequence[str]) -> int:
    """Measures and prints; 0: success, 1: ranks failed or a result is wrong, 2: wrong arguments."""
    operator = load(name)
    options = parse(operator, arguments)
    return status_of_command(f"collops bench {name}", lambda: run(operator, options))


def run(operator: Operator, options: argparse.Namespace) -> int:
    """Runs the benchmark that the arguments describe and returns the exit status.

    Raises:
        OSError: a file cannot be written.
        ValueError: the arguments do not fit together.
    """
    start = start_of(operator, options)
    options.launched = start.size
    gpu = on_gpu(operator, options, start)
    if start.size:
        if options.mpi:
            raise ValueError("--mpi starts ranks itself: not with a rank table or collops run")
        options.peers = tuple(peer for peer in options.peers if peer != "mpi")
    points = operator.points(options)
    mpis: list[Mpi | None] = [*find_mpis(options.mpi)] if "mpi" in options.peers else []
    if options.plot:
        from collops.bench.plot import require_matplotlib

        require_matplotlib(options.plot)
    core()  # raises at once if the core cannot be loaded
    sweep = operator.sweep if options.sweep else None
    request = Request(
        operator=operator.name,
        points=tuple(points),
        iterations=options.iterations,
        threads=threads(),
        own=sweep.own if sweep else options.own,
        peers=options.peers,
        gpu=gpu,
    )
    for reason in options.left_out if start.shows else ():
        print(f"Note: not measured: {reason}.\n", flush=True)
    load = load_average()
    measured, failed = _measure(operator, request, mpis or [None], start, options)
    if measured:
        if operator.listing is None:
            title, lines = ("Sweep", sweep.lines) if sweep else ("Summary", operator.summary)
            print(f"### {title}\n\n{markdown_table(*lines(measured))}")
        if options.plot:
            from collops.bench.plot import save_plot

            save = operator.listing.save_plot if operator.listing else partial(save_plot, operator)
            save(options.plot, measured)
            print(f"\nplot: {options.plot}")
        if gpu is None and (warning := shared_cores(load, _spreads(measured))):
            print(f"\nWarning: {warning}.")
        print(f"\nFor an issue: {command_line()}; {installation_line()}")
    elif not failed and start.environments and not start.shows:
        print("The results are printed where rank 0 runs.")
    wrong = any(row["wrong_ranks"] for rows in measured for row in rows)
    return 1 if failed or wrong or (start.shows and not measured) else 0


def _spreads(measured: Sequence[Sequence[Row]]) -> list[float]:
    """How far the times of each row are apart, of ranks with a core each."""
    cores, _ = usable_cores()
    return [
        row["ms_p95"] / row["ms_min"]
        for rows in measured
        for row in rows
        if row["ranks"] <= cores and row["ms_min"] > 0
    ]


def _measure(
    operator: Operator,
    request: Request,
    mpis: Sequence[Mpi | None],
    start: Start,
    options: argparse.Namespace,
) -> tuple[list[list[Row]], bool]:
    """The printed rows of each point of all launches; and whether a launch failed."""
    measured: list[list[Row]] = []
    failed = False
    if options.json:
        options.json.write_text("")
    numbers = dict.fromkeys(point.ranks for point in request.points)
    progress = Progress(len(mpis) * len(request.points))
    for mpi, ranks in itertools.product(mpis, numbers):
        points = tuple(point for point in request.points if point.ranks == ranks)
        progress.show(len(measured), points[0].title)
        part = dataclasses.replace(request, points=points, mpi=mpi.name if mpi else "")
        shown: list[list[Row]] = []
        try:
            for record in _records(part, ranks, mpi, start):
                progress.clear()
                if rows := _show(operator, record, options, first=not shown):
                    shown.append(rows)
                following = points[len(shown) :]
                progress.show(len(measured) + len(shown), following[0].title if following else "")
        except RanksFailedError as problem:
            failed = True
            progress.clear()
            where = f" under {mpi.name}" if mpi else ""
            said = f"collops bench {operator.name}: the ranks failed{where}:\n{problem}"
            print(said, file=sys.stderr)
        progress.clear()
        if shown and operator.listing and (foot := operator.listing.foot(shown)):
            print(f"\n{foot}", flush=True)
        measured += shown
    return measured, failed


def _records(request: Request, ranks: int, mpi: Mpi | None, start: Start) -> Iterator[Row]:
    """What rank 0 writes: this process, or a rank that is started here."""
    if request.gpu is not None:
        torch = TorchBaselines(request)
        for record in launch(request, ranks, None, [process_of_ranks()], RANK_PROGRAM):
            yield from torch.add(record) if record["record"] == "point" else ()
            yield record
        return
    if start.rank < 0:
        yield from launch(request, ranks, mpi, start.environments)
        return
    from collops.bench.rank_program import measure

    os.environ["COLLOPS_NUM_THREADS"] = str(request.threads)
    yield from measure(request, "")


def _show(
    operator: Operator, record: Row, options: argparse.Namespace, *, first: bool
) -> list[Row]:
    """Prints a record and writes its rows; `first`: no point of this launch was shown before."""
    if record["record"] == "note":
        print(f"Note: {record['text']}.\n", flush=True)
        return []
    rows = compared(operator, record)
    if options.json:
        with options.json.open("a") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in rows)
    if operator.listing is None:
        print(point_table(operator, rows), flush=True)
        return rows
    if first:
        print(f"\n{operator.listing.head(rows[0])}")
    print("\n".join(operator.listing.lines(rows)), flush=True)
    return rows
