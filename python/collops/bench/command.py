"""``collops bench linear_parallel``: LinearParallel beside other ways to do the same."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from collops.bench.launch import RanksFailedError, launch
from collops.bench.operators.linear_parallel.options import (
    PROGRAM,
    iterations,
    make_parser,
    make_points,
    threads,
)
from collops.bench.operators.linear_parallel.report import rows_of
from collops.bench.peers.mpi_launcher import find_mpis
from collops.bench.request import OWN, Request
from collops.bench.tables import point_table, summary_table, sweep_table
from collops.core import core

if TYPE_CHECKING:
    import argparse

    from collops.bench.peers.mpi_launcher import Mpi
    from collops.bench.request import Point

Row = dict[str, Any]

_SWEPT = ("fused_window", "fused", "unfused", "gemm", "peak")


def main(arguments: Sequence[str]) -> int:
    """Measures and prints: 0 all is well, 1 ranks failed or a result is wrong, 2 misuse."""
    options = make_parser().parse_args(arguments)
    try:
        return run(options)
    except (ValueError, OSError) as problem:
        print(f"{PROGRAM}: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return 130


def run(options: argparse.Namespace) -> int:
    """Runs what the arguments say and returns the exit status.

    Raises:
        OSError: a file cannot be written.
        ValueError: the arguments do not fit together.
    """
    points, peers = make_points(options), () if options.sweep else options.peers
    mpis: list[Mpi | None] = [*find_mpis(options.mpi)] if "mpi" in peers else []
    if options.plot:
        from collops.bench.plot import require_matplotlib

        require_matplotlib(options.plot)
    core()  # says at once where there is none
    request = Request(
        points=tuple(points),
        iterations=iterations(options),
        threads=threads(),
        own=_SWEPT if options.sweep else OWN,
        peers=peers,
    )
    rows, failed = _measure(request, mpis or [None], options)
    if rows:
        print(sweep_table(rows) if options.sweep else summary_table(rows))
        if options.plot:
            from collops.bench.plot import save_plot

            save_plot(options.plot, rows)
    wrong = any(row["wrong_ranks"] for row in rows)
    return 1 if failed or wrong or not rows else 0


def _measure(
    request: Request, mpis: Sequence[Mpi | None], options: argparse.Namespace
) -> tuple[list[Row], bool]:
    """The rows of all launches, printed and written as they come; whether a launch failed."""
    rows: list[Row] = []
    failed = False
    if options.json:
        options.json.write_text("")
    for mpi in mpis:
        for part in _by_ranks(request, mpi):
            try:
                for record in launch(part, part.points[0].ranks, mpi):
                    rows += _show(record, options)
            except RanksFailedError as problem:
                failed = True
                where = f" under {mpi.name}" if mpi else ""
                print(f"{PROGRAM}: the ranks failed{where}:\n{problem}", file=sys.stderr)
    return rows, failed


def _show(record: Row, options: argparse.Namespace) -> list[Row]:
    """Prints a record and writes its rows."""
    if record["record"] == "note":
        print(f"Note: {record['text']}.\n", flush=True)
        return []
    rows = rows_of(record)
    if options.json:
        with options.json.open("a") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in rows)
    print(point_table(rows), flush=True)
    return rows


def _by_ranks(request: Request, mpi: Mpi | None) -> Iterator[Request]:
    """One request for each number of ranks, in the order in which they come."""
    numbers: dict[int, list[Point]] = {}
    for point in request.points:
        numbers.setdefault(point.ranks, []).append(point)
    for points in numbers.values():
        yield dataclasses.replace(request, points=tuple(points), mpi=mpi.name if mpi else "")
