"""The tables of docs/performance.md: collops / the fastest MPI, of one or more runs of a machine.

python bench/summary.py RUN.json ...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import ratios

_PLACES = ("near", "far")
_HEAD = (
    *("call", "bytes", "near: MPI us", "plain / MPI", "window / MPI"),
    *("far: MPI us", "plain / MPI", "window / MPI", "rounds near, far"),
)


def points_of(paths: Iterable[Path]) -> list[ratios.Record]:
    """The points of all runs, as if they were one."""
    return [point for path in paths for point in ratios.points_of(json.loads(path.read_text()))]


def tables(points: list[ratios.Record]) -> str:
    """A table for each way to share the vector out."""
    by_shares: dict[str, list[tuple[str, ...]]] = {}
    for (operator, dtype, shares), table in ratios.cells(points).items():
        lines = by_shares.setdefault(shares, [])
        name = f"{operator} {dtype}"
        for size in sorted({size for size, _ in table}):
            lines.append((name, *_cells(size, table)))
            name = ""
    parts = []
    for shares, lines in by_shares.items():
        rule = ("---", *("---:" for _ in _HEAD[1:]))
        text = "\n".join(f"| {' | '.join(line)} |" for line in (_HEAD, rule, *lines))
        parts.append(f"{shares.count(':') + 1} ranks, shares {shares}:\n\n{text}\n")
    return "\n".join(parts)


def _cells(size: int, table: dict[tuple[int, str], ratios.Cell]) -> tuple[str, ...]:
    texts, rounds = [ratios.size_text(size)], []
    for place in _PLACES:
        cell = table.get((size, place), ratios.Cell())
        mpi = min(cell.mpi().values(), default=None)
        texts.append(ratios.time_text(mpi))
        texts += [ratios.ratio_text(cell.of(way), mpi) for way in (ratios.PLAIN, ratios.WINDOW)]
        rounds.append(str(cell.rounds()) if cell.times_us else "-")
    return (*texts, ", ".join(rounds))


def main(paths: Sequence[str]) -> int:
    """Prints the tables of the runs."""
    print(tables(points_of(map(Path, paths))), end="")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    raise SystemExit(main(sys.argv[1:]))
