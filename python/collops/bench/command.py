"""``collops bench NAME``: measures an operator next to other libraries."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import statistics
import sys
from collections.abc import Iterator, Sequence

from collops.bench.launch import RanksFailedError, Start, launch, start_of
from collops.bench.operator import Operator, Request, Row
from collops.bench.operators import load
from collops.bench.options import on_gpu, parse, threads
from collops.bench.peers.mpi_launcher import Mpi, find_mpis
from collops.bench.peers.torch_gpu import TorchBaselines
from collops.core import core, usable_cores
from collops.terminal import Progress
from collops.terminal.arguments import status_of_command
from collops.terminal.installation import command_line, installation_line

# A row is disturbed if 95 % of its calls need more than its fastest call this many times.
_MOST_SPREAD = 5.0


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
    gpu = on_gpu(operator, options, start.size)
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
    request = Request(
        operator=operator.name,
        points=tuple(points),
        iterations=options.iterations,
        threads=threads(),
        own=options.own,
        peers=options.peers,
        gpu=gpu,
    )
    for reason in options.left_out if start.shows else ():
        print(f"Note: not measured: {reason}.\n", flush=True)
    load = os.getloadavg()[0]
    measured, failed = _measure(operator, request, mpis or [None], start, options)
    if measured:
        _print_end(operator, measured, options, "" if gpu else disturbed(operator, measured, load))
    elif not failed and start.environments and not start.shows:
        print("The results are printed where rank 0 runs.")
    wrong = any(operator.is_wrong(row) for rows in measured for row in rows)
    return 1 if failed or wrong or (start.shows and not measured) else 0


def _print_end(
    operator: Operator, measured: list[list[Row]], options: argparse.Namespace, warning: str
) -> None:
    """Prints what stands below the points of all launches."""
    if text := operator.summary(measured):
        print(text)
    if options.plot:
        operator.save_plot(options.plot, measured)
        print(f"\nplot: {options.plot}")
    if warning:
        print(f"\nWarning: {warning}.")
    print(f"\nFor an issue: {command_line()}; {installation_line()}")


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
        if shown and (foot := operator.foot(shown)):
            print(foot, flush=True)
        measured += shown
    return measured, failed


def _records(request: Request, ranks: int, mpi: Mpi | None, start: Start) -> Iterator[Row]:
    """What rank 0 writes: this process, or a rank that is started here."""
    torch = TorchBaselines(request) if request.gpu else None
    if start.rank < 0:
        for record in launch(request, ranks, mpi, start.environments):
            if torch is not None and record["record"] == "point":
                yield from torch.add(record)
            yield record
        return
    from collops.bench.ranks import measure

    os.environ["COLLOPS_NUM_THREADS"] = str(request.threads)
    yield from measure(request, "")


def _show(
    operator: Operator, record: Row, options: argparse.Namespace, *, first: bool
) -> list[Row]:
    """Prints a record and writes its rows; `first`: no point of this launch was shown before."""
    if record["record"] == "note":
        print(f"Note: {record['text']}.\n", flush=True)
        return []
    rows = operator.rows(record)
    if options.json:
        with options.json.open("a") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in rows)
    if first and (head := operator.head(rows[0])):
        print(head)
    if text := operator.text(rows):
        print(text, flush=True)
    return rows


def disturbed(operator: Operator, measured: Sequence[Sequence[Row]], load: float) -> str:
    """A warning if other programs had the cores, too; `load` is the average before."""
    cores, _ = usable_cores()  # each row's ranks must have one, to show other programs
    rows = [row for rows in measured for row in rows if row["ranks"] <= cores]
    return shared_cores(load, [operator.spread(row) for row in rows])


def shared_cores(load: float, spreads: Sequence[float]) -> str:
    """A warning if the cores were shared with other programs; empty if they were not.

    `load` is the load average before the ranks were started; `spreads` are those of rows whose
    ranks have a core each, the 95th percentile of the times over the fastest one.
    """
    cores = os.cpu_count() or 1
    if load > cores:
        return (
            f"the cores were shared with other programs (load {load:.1f} on {cores} cores): "
            "these times are mostly the scheduler's"
        )
    if spreads and statistics.median_low(spreads) > _MOST_SPREAD:
        return (
            f"in most rows the slowest calls took more than {_MOST_SPREAD:g} times as long as the "
            f"fastest (load {load:.1f} on {cores} cores): other programs disturbed these times"
        )
    return ""
