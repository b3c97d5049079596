"""The table of a run's file: times of collops divided by those of the fastest MPI.

    python bench/ratios.py RUN.json

Points are compared only if the cores lay alike, by the time of a flag before and after each point.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# One way of a flag: threads of one core take less than the first (measured: 0.03), cores that share
# a cache less than the second (0.05 to 0.10), all others more (0.2 to 0.35).
SIBLING_US = 0.045
NEAR_US = 0.15
PLACES = ("sibling", "near", "far", "one core")
COLLOPS = "collops"
PLAIN, WINDOW = "plain", "window"
HEAD = (
    *("bytes", "flag", "MPI us", "fastest way", "plain us", "window us"),
    *("plain / MPI", "window / MPI", "MPI ways", "rounds"),
)
SHARED = ("operator", "dtype", "shares", "cores")
Record = dict[str, Any]
_MEDIAN = 1  # of [min, median, p95]


def launch_record(number: int, peer: str, points: list[Record]) -> Record:
    """A launch as the run's file has it: what all its points share stands once."""
    shared = {name: points[0][name] for name in SHARED if name in points[0]} if points else {}
    own = [
        {name: value for name, value in point.items() if shared.get(name) != value}
        for point in points
    ]
    return {"round": number, "peer": peer, **shared, "points": own}


def points_of(run: Record) -> list[Record]:
    """All points of a run's file."""
    return [
        {**{name: value for name, value in launch.items() if name != "points"}, **point}
        for launch in run["launches"]
        for point in launch["points"]
    ]


def place(flags_us: list[float]) -> str:
    """Where the cores lay: one of PLACES, or "moved" if that changed during the point."""
    found = {_place(flag_us) for flag_us in flags_us}
    return found.pop() if len(found) == 1 else "moved"


def _place(flag_us: float) -> str:
    if flag_us == 0:
        return "one core"
    return "sibling" if flag_us < SIBLING_US else "near" if flag_us < NEAR_US else "far"


@dataclass
class Cell:
    """The points of one call, one size and one place, by peer and way: a median for each round."""

    times_us: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, point: Record) -> None:
        """One more round."""
        self.times_us.setdefault((point["peer"], point["way"]), []).append(point["us"][_MEDIAN])

    def of(self, way: str) -> float | None:
        """The median over the rounds of a way of collops."""
        times = self.times_us.get((COLLOPS, way))
        return statistics.median(times) if times else None

    def mpi(self) -> dict[str, float]:
        """The median over the rounds of each way of each MPI."""
        return {
            f"{peer}, {way}": statistics.median(times)
            for (peer, way), times in self.times_us.items()
            if peer != COLLOPS
        }

    def rounds(self) -> int:
        """The fewest rounds that stand behind one of the row's figures."""
        mpi = self.mpi()
        fastest = min(mpi, key=lambda name: mpi[name]) if mpi else ""
        return min(
            len(times)
            for (peer, way), times in self.times_us.items()
            if peer == COLLOPS or f"{peer}, {way}" == fastest
        )


def cells(points: list[Record]) -> dict[tuple[str, str, str], dict[tuple[int, str], Cell]]:
    """Right results alone, by operator, type and shares, and then by bytes and place."""
    tables: dict[tuple[str, str, str], dict[tuple[int, str], Cell]] = {}
    for point in points:
        if point.get("wrong_ranks") != 0:
            continue
        table = tables.setdefault((point["operator"], point["dtype"], point["shares"]), {})
        key = point["bytes"], place(point["flag_us"])
        table.setdefault(key, Cell()).add(point)
    return tables


def rows(table: dict[tuple[int, str], Cell]) -> Iterator[tuple[str, ...]]:
    """The lines of one call's table; a line for each size and place in which collops was measured.

    A fastest way is told only of those that were measured in the same place: ``MPI ways`` says how
    many these are, of how many.
    """
    for size in sorted({size for size, _ in table}):
        here = {where: cell for (of, where), cell in table.items() if of == size}
        all_ways = {name for cell in here.values() for name in cell.mpi()}
        for where in PLACES:
            cell = here.get(where, Cell())
            plain, window, mpi = cell.of(PLAIN), cell.of(WINDOW), cell.mpi()
            if plain is None and window is None:
                continue
            fastest = min(mpi, key=lambda name: mpi[name], default="-")
            best = mpi.get(fastest)
            yield (
                size_text(size),
                where,
                time_text(best),
                fastest,
                time_text(plain),
                time_text(window),
                ratio_text(plain, best),
                ratio_text(window, best),
                f"{len(mpi)} of {len(all_ways)}",
                str(cell.rounds()),
            )


def report(run: Record) -> str:
    """All tables of a run in markdown, and what failed or was wrong."""
    parts = []
    points = points_of(run)
    rule = tuple("---:" if name != "fastest way" else "---" for name in HEAD)
    for (operator, dtype, shares), table in cells(points).items():
        measured = list(rows(table))
        if not measured:
            continue
        lines = [HEAD, rule, *measured]
        text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        ranks = shares.count(":") + 1
        parts.append(f"### {operator} {dtype}, {ranks} ranks {shares}\n\n{text}\n")
    moved = sum(place(point["flag_us"]) == "moved" for point in points if "flag_us" in point)
    if moved:
        parts.append(f"{moved} of {len(points)} points left out: the cores moved while they ran.")
    parts += [f"WRONG: {_name(point)}" for point in points if point.get("wrong_ranks")]
    parts += sorted(
        {f"not run: {_name(point)}: {point['unsupported']}" for point in points if _lacks(point)}
    )
    parts += [
        f"FAILED: round {one['round']}, {one['peer']}, {one['case']}: {one['status']}"
        for one in run["failed"]
    ]
    return "\n".join(parts)


def is_good(run: Record) -> bool:
    """Whether nothing failed and every result was right."""
    return not run["failed"] and not any(point.get("wrong_ranks") for point in points_of(run))


def _lacks(point: Record) -> bool:
    return "unsupported" in point


def _name(point: Record) -> str:
    words = [point["peer"], point["way"], point["operator"], point["dtype"]]
    return " ".join(
        words if _lacks(point) else [*words, size_text(point["bytes"]), point["shares"]]
    )


def size_text(size: int) -> str:
    """A size as the tables print it."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_text(us: float | None) -> str:
    """A time in microseconds as the tables print it."""
    return "-" if us is None else f"{us:.2f}" if us < 100 else f"{us:.0f}"


def ratio_text(us: float | None, of: float | None) -> str:
    """One time divided by another as the tables print it."""
    return "-" if us is None or of is None else f"{us / of:.2f}"


def main(path: str) -> int:
    """Prints the tables of a run's file."""
    run = json.loads(Path(path).read_text())
    print(report(run))
    return 0 if is_good(run) else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    raise SystemExit(main(sys.argv[1]))
