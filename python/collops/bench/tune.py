"""``collops tune``: AllReduce in one step and in two, measured by the bench, and the choice."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collops.bench.collectives import PLAIN, CollectivePoint
from collops.bench.command import shared_cores
from collops.bench.launch import RanksFailedError, launch
from collops.bench.operator import Request, Row
from collops.bench.operators.collectives import ONE_STEP, TWO_STEPS, size_for
from collops.bench.options import threads
from collops.bench.shares import EVEN, share, size_text
from collops.core import core, usable_cores
from collops.terminal import Progress
from collops.terminal.arguments import Parser, counts, status_of_command
from collops.terminal.tables import markdown_head, markdown_row

# A size counts for at most this ratio of the times, however far apart they are: where the two ways
# cross they differ by less, and a size that was disturbed must not outweigh its neighbours.
_MOST_RATIO = 1.1
_DIGITS = 9  # beyond which two sums are equal


@dataclass(frozen=True)
class Timed:
    """The times of both ways at one size, in microseconds."""

    size: int  # bytes of a rank's vector
    one_step_us: float
    two_steps_us: float

    @property
    def gain(self) -> float:
        """How much faster one step is, as a clipped logarithm; below 0: two steps are."""
        most = math.log(_MOST_RATIO)
        return max(-most, min(most, math.log(self.two_steps_us / self.one_step_us)))


def choose(timed: Sequence[Timed], now: int) -> int:
    """The largest size for one step, with which the measured calls gain most.

    A threshold gains what one step gains at the sizes up to it, and what two steps gain at the
    larger ones. It is 0 (never one step) or a measured size; several times of one size count
    alike. The present threshold `now` stays if nothing measured tells it from the best one, and of
    several best ones the nearest to it is taken.

    Example:
        >>> table = [Timed(1024, 2, 3), Timed(4096, 4, 5), Timed(65536, 30, 20)]
        >>> choose(table, now=65536), choose(table, now=5000)
        (4096, 5000)
    """
    sizes = [0, *sorted({each.size for each in timed})]
    gains = [
        sum(each.gain if each.size <= size else -each.gain for each in timed) for size in sizes
    ]
    present = max(i for i, size in enumerate(sizes) if size <= now)
    best = max(range(len(sizes)), key=lambda i: (round(gains[i], _DIGITS), -abs(i - present), -i))
    return now if best == present else sizes[best]


VARIABLE = "COLLOPS_TUNING"
_RANKS = (2, 4)
_SIZES = tuple(1 << bits for bits in (10, *range(12, 23)))
_QUICK_SIZES = tuple(1 << bits for bits in (14, 16, 18, 20))
_ROUNDS, _QUICK_ROUNDS = 80, 4
_MOST_S = 1.0  # after which a size has enough rounds
_ITEM_BYTES = 4  # of float32
_KEYS = ONE_STEP.key(PLAIN), TWO_STEPS.key(PLAIN)
_COLUMNS = {"ranks": 5, "size": 5, "1 step us": 10, "2 steps us": 10, "faster": 15}
_WIDTHS = list(_COLUMNS.values())
_DESCRIPTION = """
Measures AllReduce on plain memory with the one-step and the two-step algorithm, in turn on the same
ranks of this host, and chooses the sizes up to which one step is used: one size for 2 ranks, one
for more ranks. The last line of its output sets COLLOPS_TUNING. It has no effect by itself: export
it before a program starts, in all ranks of a host, or pass the text after the first = as
init(tuning=...).
"""
_STATUS = """
Run it on an idle machine. Exit status: 0 success, 1 ranks failed, 2 wrong arguments.
"""


def main(arguments: Sequence[str]) -> int:
    """Measures and prints; 0: success, 1: ranks failed or a result is wrong, 2: wrong arguments."""
    options = parser().parse_args(arguments)
    try:
        return status_of_command("collops tune", lambda: run(options))
    except RanksFailedError as problem:
        print(f"collops tune: the ranks failed:\n{problem}", file=sys.stderr)
        return 1


def run(options: argparse.Namespace) -> int:
    """Measures what the options say, prints the table and the line, and returns the status.

    Raises:
        OSError: the file cannot be written.
        ValueError: a number of ranks is wrong.
        RanksFailedError: a rank failed, or a result is wrong.
    """
    if min(options.ranks) < 2:
        raise ValueError(f"--ranks {min(options.ranks)}: at least 2 are needed")
    if options.output:
        options.output.open("a").close()  # raises before anything is measured
    table = {name: now for name, _, now, _ in core().tuned_sizes()}
    timed: dict[str, list[Timed]] = {}
    spreads: list[float] = []
    (cores, _), load = usable_cores(), os.getloadavg()[0]
    print(markdown_head(list(_COLUMNS), _WIDTHS), flush=True)
    for row in _measured(options):
        ways = {way["column"]: way for way in row["columns"]}
        found = Timed(row["bytes"], *(ways[key]["ms"] * 1e3 for key in _KEYS))
        timed.setdefault(size_for(row["ranks"]), []).append(found)
        if row["ranks"] <= cores:
            spreads += [way["ms_p95"] / way["ms_min"] for way in ways.values()]
        print(markdown_row(_cells(row["ranks"], found), _WIDTHS), flush=True)
    chosen = {name: choose(every, table[name]) for name, every in timed.items()}
    line = f"{VARIABLE}={tuning_text(chosen)}"
    warning = shared_cores(load, spreads)
    notes = [_crowded_ranks(options.ranks, cores), f"Warning: {warning}." if warning else ""]
    print("".join(f"\n{note}\n" for note in notes if note) + f"\n{line}")
    if options.output:
        comment = f"# Measure again on an idle machine: {warning}.\n" if warning else ""
        options.output.write_text(f"{comment}export {line}\n")
    return 0


def tuning_text(chosen: Mapping[str, int]) -> str:
    """The chosen sizes, and the others that are set in this environment: the line replaces it."""
    sizes = {
        name: chosen.get(name, now)
        for name, usual, now, _ in core().tuned_sizes()
        if name in chosen or now != usual
    }
    return ",".join(f"{name}={size_text(size)}" for name, size in sizes.items())


def _measured(options: argparse.Namespace) -> Iterator[Row]:
    """What the ranks measured, as soon as they have; shows on a terminal how far they are."""
    sizes, numbers = _QUICK_SIZES if options.quick else _SIZES, dict.fromkeys(options.ranks)
    left = [f"{ranks} ranks, {size_text(size)}" for ranks in numbers for size in sizes]
    progress, done = Progress(len(left)), 0
    try:
        for ranks in numbers:
            progress.show(done, left[0])
            request = _request(ranks, sizes, _QUICK_ROUNDS if options.quick else _ROUNDS)
            for row in launch(request, ranks):
                if any(way["wrong_ranks"] for way in row["columns"]):
                    where = f"{row['ranks']} ranks, {size_text(row['bytes'])}"
                    raise RanksFailedError(f"{where}: a result is wrong")
                progress.clear()
                yield row
                done += 1
                del left[0]
                if left:
                    progress.show(done, left[0])
    finally:
        progress.clear()


def _request(ranks: int, sizes: Sequence[int], rounds: int) -> Request:
    points = tuple(
        CollectivePoint(
            dtype="f32", size=size, skew=EVEN, counts=share(size // _ITEM_BYTES, ranks, EVEN)
        )
        for size in sizes
    )
    return Request(
        operator="all_reduce",
        points=points,
        iterations=rounds,
        threads=threads(),
        own=_KEYS,
        alone=True,
        most_s=_MOST_S,
    )


def _cells(ranks: int, timed: Timed) -> list[str]:
    one, two = timed.one_step_us, timed.two_steps_us
    name = ONE_STEP.name if one < two else TWO_STEPS.name
    faster = f"{name} by {max(one, two) / min(one, two):.2f}"
    return [str(ranks), size_text(timed.size), f"{one:.2f}", f"{two:.2f}", faster]


def _crowded_ranks(ranks: Sequence[int], cores: int) -> str:
    """A note for numbers of ranks that have no core each; empty if all have."""
    crowded = [number for number in dict.fromkeys(ranks) if number > cores]
    if not crowded:
        return ""
    sizes = " and ".join(dict.fromkeys(map(size_for, crowded)))
    numbers = ", ".join(map(str, crowded))
    return (
        f"Note: {numbers} ranks share {cores} core(s): their times are mostly the scheduler's, "
        f"and this choice of {sizes} is for programs that run so."
    )


def parser() -> Parser:
    """The parser of the command."""
    parser = Parser(
        prog="collops tune",
        description=_DESCRIPTION,
        epilog=_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--ranks",
        type=lambda text: counts(text, ","),
        default=_RANKS,
        metavar="2,4",
        help="numbers of ranks on this host, each measured separately; all numbers above 2 share "
        "one chosen size (2,4)",
    )
    add(
        "--output", type=Path, metavar="FILE", help="write the line to FILE, for a shell's `. FILE`"
    )
    add("--quick", action="store_true", help="few sizes and rounds, to check that all parts work")
    return parser
