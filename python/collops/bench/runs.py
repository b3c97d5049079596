"""Runs of the C++ programs beside MPIs: their tables and pictures, from the files of the runs.

Points are compared only if the cores lay alike, by the time of a flag before and after each point.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collops.bench.operator import Row

# One way of a flag: threads of one core take less than the first (measured: 0.03), cores that share
# a cache less than the second (0.05 to 0.10), all others more (0.2 to 0.35).
SIBLING_US = 0.045
NEAR_US = 0.15
PLACES = ("sibling", "near", "far", "one core")
# Peers whose names begin so are collops; the builds before are those of --before.
COLLOPS, BEFORE, AGAIN = "collops", "collops before", "collops before, again"
PLAIN, WINDOW = "plain", "window"
_HEAD = (
    *("bytes", "flag", "MPI us", "fastest way", "plain us", "window us"),
    *("plain / MPI", "window / MPI", "MPI ways", "rounds"),
)
_SUMMARY_HEAD = (
    *("call", "bytes", "near: MPI us", "plain / MPI", "window / MPI"),
    *("far: MPI us", "plain / MPI", "window / MPI", "rounds near, far"),
)
_BUILDS_HEAD = (
    *("call", "bytes", "flag", "way", "before us", "now us", "now / before"),
    *("again / before - 1", "worst", "rounds"),
)
_SHARED = ("operator", "dtype", "shares", "cores")
_COLORS = {"sibling": "#54a24b", "near": "#4c78a8", "far": "#e45756", "one core": "#b279a2"}
_STYLES = {PLAIN: "-", WINDOW: "--"}
_LEAST_ROUNDS = 2  # behind a point of a picture; fewer are noise
_MEDIAN = 1  # of [min, median, p95]


def launch_record(number: int, peer: str, points: list[Row]) -> Row:
    """A launch as the run's file has it: what all its points share stands once."""
    shared = {name: points[0][name] for name in _SHARED if name in points[0]} if points else {}
    own = [
        {name: value for name, value in point.items() if shared.get(name) != value}
        for point in points
    ]
    return {"round": number, "peer": peer, **shared, "points": own}


def points_of(run: Row) -> list[Row]:
    """All points of a run's file."""
    return [
        {**{name: value for name, value in launch.items() if name != "points"}, **point}
        for launch in run["launches"]
        for point in launch["points"]
    ]


def read_runs(paths: Iterable[Path]) -> list[Row]:
    """The runs of files.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is none of a run.
    """
    runs = []
    for path in paths:
        try:
            runs.append(json.loads(path.read_text()))
            points_of(runs[-1])
        except (ValueError, LookupError, TypeError) as problem:
            raise ValueError(f"{path}: not the file of a run: {problem!r}") from None
    return runs


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

    def add(self, point: Row) -> None:
        """One more round."""
        self.times_us.setdefault((point["peer"], point["way"]), []).append(point["us"][_MEDIAN])

    def of(self, way: str, peer: str = COLLOPS) -> float | None:
        """The median over the rounds of a way of collops."""
        times = self.times_us.get((peer, way))
        return statistics.median(times) if times else None

    def mpi(self) -> dict[str, float]:
        """The median over the rounds of each way of each MPI."""
        return {
            f"{peer}, {way}": statistics.median(times)
            for (peer, way), times in self.times_us.items()
            if not peer.startswith(COLLOPS)
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


Table = dict[tuple[int, str], Cell]


def cells(points: list[Row]) -> dict[tuple[str, str, str], Table]:
    """Right results alone, by operator, type and shares, and then by bytes and place."""
    tables: dict[tuple[str, str, str], Table] = {}
    for point in points:
        if point.get("wrong_ranks") != 0:
            continue
        table = tables.setdefault((point["operator"], point["dtype"], point["shares"]), {})
        table.setdefault((point["bytes"], place(point["flag_us"])), Cell()).add(point)
    return tables


def _rows(table: Table) -> Iterator[tuple[str, ...]]:
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
                *(size_text(size), where, _time_text(best), fastest),
                *(_time_text(plain), _time_text(window)),
                *(_ratio_text(plain, best), _ratio_text(window, best)),
                f"{len(mpi)} of {len(all_ways)}",
                str(cell.rounds()),
            )


def report(run: Row) -> str:
    """All tables of a run in markdown, and what failed or was wrong."""
    parts = []
    points = points_of(run)
    for (operator, dtype, shares), table in cells(points).items():
        if measured := list(_rows(table)):
            ranks = shares.count(":") + 1
            text = _markdown(_HEAD, measured, left=("fastest way",))
            parts.append(f"### {operator} {dtype}, {ranks} ranks {shares}\n\n{text}\n")
    if any(point["peer"] == BEFORE for point in points):
        parts.append(f"### The build before\n\n{_builds_table(points)}\n")
    moved = sum(place(point["flag_us"]) == "moved" for point in points if "flag_us" in point)
    if moved:
        parts.append(f"{moved} of {len(points)} points left out: the cores moved while they ran.")
    parts += [f"WRONG: {_name(point)}" for point in points if point.get("wrong_ranks")]
    parts += sorted(
        {
            f"not run: {_name(point)}: {point['unsupported']}"
            for point in points
            if "unsupported" in point
        }
    )
    parts += [
        f"FAILED: round {one['round']}, {one['peer']}, {one['case']}: {one['status']}"
        for one in run["failed"]
    ]
    return "\n".join(parts)


def is_good(run: Row) -> bool:
    """Whether nothing failed and every result was right."""
    return not run["failed"] and not any(point.get("wrong_ranks") for point in points_of(run))


def _builds_table(points: list[Row]) -> str:
    """Two builds of collops: a ratio within how far the old one is from itself says nothing."""
    lines = []
    for (operator, dtype, _), table in cells(points).items():
        for (size, where), cell in sorted(table.items()):
            for way in dict.fromkeys(way for peer, way in cell.times_us if peer == COLLOPS):
                before, again = (cell.times_us.get((peer, way), []) for peer in (BEFORE, AGAIN))
                old, new = [*before, *again], cell.times_us[COLLOPS, way]
                if not before or not again or where not in PLACES:
                    continue
                was, now = statistics.median(old), statistics.median(new)
                apart = [abs(b / a - 1) for a, b in zip(before, again, strict=False)]
                lines.append(
                    (
                        *(f"{operator} {dtype}", size_text(size), where, way),
                        *(_time_text(was), _time_text(now), f"{now / was:.3f}"),
                        *(f"{statistics.median(apart):.1%}", f"{max(apart):.1%}", str(len(new))),
                    )
                )
    return _markdown(_BUILDS_HEAD, lines, left=("call", "flag", "way"))


def summary(points: list[Row]) -> str:
    """One shorter table for each way to share the vector out; of several runs, too."""
    by_shares: dict[str, list[tuple[str, ...]]] = {}
    for (operator, dtype, shares), table in cells(points).items():
        lines = by_shares.setdefault(shares, [])
        name = f"{operator} {dtype}"
        for size in sorted({size for size, _ in table}):
            lines.append((name, *_summary_cells(size, table)))
            name = ""
    return "\n".join(
        f"{shares.count(':') + 1} ranks, shares {shares}:\n\n"
        f"{_markdown(_SUMMARY_HEAD, lines, left=('call',))}\n"
        for shares, lines in by_shares.items()
    )


def _summary_cells(size: int, table: Table) -> tuple[str, ...]:
    texts, rounds = [size_text(size)], []
    for where in ("near", "far"):
        cell = table.get((size, where), Cell())
        mpi = min(cell.mpi().values(), default=None)
        texts.append(_time_text(mpi))
        texts += [_ratio_text(cell.of(way), mpi) for way in (PLAIN, WINDOW)]
        rounds.append(str(cell.rounds()) if cell.times_us else "-")
    return (*texts, ", ".join(rounds))


def _markdown(
    head: tuple[str, ...], lines: Sequence[tuple[str, ...]], left: tuple[str, ...]
) -> str:
    rule = tuple("---" if name in left else "---:" for name in head)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def lines_of(table: Table) -> dict[tuple[str, str], tuple[list[float], list[float]]]:
    """By place and kind of memory: the sizes, and collops's time / the fastest MPI's."""
    found: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for (size, where), cell in sorted(table.items(), key=lambda entry: entry[0][0]):
        mpi = cell.mpi()
        if where not in _COLORS or not mpi or cell.rounds() < _LEAST_ROUNDS:
            continue
        for way in _STYLES:
            own = cell.of(way)
            if own is not None:
                sizes, values = found.setdefault((where, way), ([], []))
                sizes.append(size)
                values.append(own / min(mpi.values()))
    return found


def save_plot(path: Path, points: list[Row]) -> None:
    """A panel for each call, a line for each place of the cores and each kind of memory.

    Raises:
        ValueError: there is nothing to draw.
    """
    from collops.bench.plot import save_panels

    save_panels(path, panels(points))


def panels(points: list[Row]) -> list[Any]:
    """The panels of the picture."""
    from collops.bench.plot import Panel

    made = []
    for (operator, dtype, shares), table in cells(points).items():
        found = {f"{way}, {where} cores": line for (where, way), line in lines_of(table).items()}
        styles = {
            f"{way}, {where} cores": {"color": color, "linestyle": style, "marker": "."}
            for where, color in _COLORS.items()
            for way, style in _STYLES.items()
        }
        if found:
            title, name = f"{operator} {dtype}, {shares}", "time / time of the fastest MPI"
            made.append(Panel(title, "bytes", name, found, styles=styles, marked=1.0))
    if not made:
        raise ValueError("no call has a point of collops and one of an MPI in the same place")
    return made


def _name(point: Row) -> str:
    words = [point["peer"], point["way"], point["operator"], point["dtype"]]
    return " ".join(
        words if "unsupported" in point else [*words, size_text(point["bytes"]), point["shares"]]
    )


def size_text(size: int) -> str:
    """A size as the tables print it."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def _time_text(us: float | None) -> str:
    return "-" if us is None else f"{us:.2f}" if us < 100 else f"{us:.0f}"


def _ratio_text(us: float | None, of: float | None) -> str:
    return "-" if us is None or of is None else f"{us / of:.2f}"
