"""Collectives: their options and points, their variants, and their table, one for all."""

from __future__ import annotations

import argparse
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from collops.bench.elements import NAMES, Bits, Element
from collops.bench.limit import NEAR_US, Flags, Part, copies, shared_vectors
from collops.bench.measure import Maker, Run, Variant
from collops.bench.operator import Operator, Point, Row
from collops.bench.peers import LINK_PEERS
from collops.bench.peers.link import LATENCY, LINK, link_variants
from collops.bench.shares import EVEN, WORDS, Group, share, size_text, sizes_of, skews
from collops.bench.tables import machine_text, number
from collops.bench.variants import Variants
from collops.terminal.arguments import counts, words
from collops.terminal.tables import markdown_head, markdown_row

SIZES = (1 << 10, 64 << 10, 1 << 20, 16 << 20)
QUICK_SIZES = (1 << 10, 64 << 10)
PLAIN, WINDOW, LIMIT, UCX = "plain", "window", "limit", "ucx"
_SKEWS = (EVEN, "3:5")
_DEFAULTS = ",".join(map(size_text, SIZES))
# Calls of a variant in its turn, up to such a size.
_BURSTS = ((64 << 10, 10), (4 << 20, 3))
_HELP = """
Each line of the table is a point: a size, an element type, a distribution over the ranks, and the
memory of x. algbw is bytes / time, busbw the bytes through the busiest rank / time; "limit" is the
time of the same copies alone, on all ranks at once.
"""
# Head and width of each column; a wider cell moves those behind it.
_COLUMNS = (
    *(("bytes", 10), ("count", 10), ("dtype", 5), ("skew", 9), ("variant", 7)),
    *(("us min", 9), ("median", 9), ("p95", 9), ("algbw", 7), ("busbw", 7)),
    *(("limit us", 9), ("/ limit", 7), ("/ plain", 7), ("check", 5), ("flag us", 15)),
)
# Of the column of variants, where they are named after algorithms, too.
_ALGORITHMS_WIDTH = 14
_FIGURES = ("algbw_gb_s", "busbw_gb_s", "limit_ms", "to_limit", "to_plain")


@dataclass(frozen=True)
class Algorithm:
    """One way in which a backend makes a collective: its name, and what the ranks do."""

    name: str
    how: str
    # Sizes of COLLOPS_TUNING with which every call takes this way; empty: there is no other way.
    tuning: str = ""

    def key(self, buffer: str) -> str:
        """The key and label of the variant that is forced to take this way."""
        return f"{self.name} {buffer}"


@dataclass(frozen=True, kw_only=True)
class CollectivePoint(Point):
    """One size of vector, shared out in one way."""

    size: int  # bytes of the vector
    skew: str
    counts: tuple[int, ...]  # each rank's elements of it
    algorithms: bool = False  # whether each algorithm is measured, too

    @property
    def ranks(self) -> int:
        return len(self.counts)

    @property
    def title(self) -> str:
        return f"{self.ranks} ranks, {self.dtype}, {self.size} bytes, {self.skew}"

    @property
    def burst(self) -> int:
        """More calls where they are short."""
        return next((calls for size, calls in _BURSTS if self.size <= size), 1)

    def describe(self) -> Row:
        return {
            "bytes": self.size,
            "count": sum(self.counts),
            "dtype": self.dtype,
            "skew": self.skew,
            "ranks": self.ranks,
            "counts": self.counts,
        }


class CollectiveVariants(Variants):
    """Makes the variants of one point; a class of operators.py says what moves."""

    point: CollectivePoint
    name: ClassVar[str]
    # The algorithms on one host, whatever the backend's name, and on several.
    shm: ClassVar[tuple[Algorithm, ...]]
    ucx: ClassVar[tuple[Algorithm, ...]]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rank, self.size = int(self.work.rank), int(self.work.size)
        self.after, self.before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        self.counts: tuple[int, ...] = self.point.counts
        self.group = Group(tuple(range(self.size)), self.rank, self.counts)
        self.starts = self.group.displs(1)
        self.moved_bytes = self.point.size
        one_host, on_host = self.hosts.count == 1, not self.place.backend
        self.flags = Flags(self.work, len(self.peers.cores)) if one_host and on_host else None
        self.backend = self.place.backend or ("shm" if one_host else UCX)
        # On one host backend ucx is shm's code, too.
        self.ways = self.shm if one_host else self.ucx
        if not on_host:
            self.ways = (Algorithm(self.backend, "what the backend has"),)
        self.facts = {
            "placement": self.hosts.text(),
            "hosts": self.hosts.count,
            "backend": self.backend,
            "one_clock": self.one_clock,
            "cores": len(self.peers.cores),
            "busiest_bytes": self.busiest() * self.element.bits.itemsize,
        }
        if self.point.algorithms:
            self.facts["algorithms"] = described(self.ways)

    def flag_us(self) -> float | None:
        """The way of a word from rank 0 to the farthest rank, where each has a core."""
        return self.flags.one_way_us() if self.flags else None

    @abstractmethod
    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """collops's call."""

    def x_rows(self, rank: int) -> int:
        """Elements of a rank's x."""
        return sum(self.counts)

    @abstractmethod
    def parts(self) -> list[Part]:
        """What the limit copies on this rank."""

    def result_rows(self) -> int:
        """Elements of this rank's result."""
        return sum(part.length for part in self.parts())

    def busiest(self) -> int:
        """Elements through the busiest rank, by which busbw counts."""
        return sum(self.counts)

    def around(self) -> list[int]:
        """All ranks, this one first."""
        return [(self.rank + i) % self.size for i in range(self.size)]

    def expected(self) -> Bits | None:
        """This rank's result, made from every rank's x."""
        return self.made_of(self.parts())

    def made_of(self, parts: Sequence[Part]) -> Bits | None:
        """The result of which these are the parts."""
        found = []
        for part in parts:
            given = [
                self.x_of(rank).reshape(-1)[begin : begin + part.length]
                for rank, begin in part.sources
            ]
            if len(given) > 1:
                total = np.zeros(part.length, np.float32)
                for one in given:
                    total += self.element.floats(one)
                given = [self.element.bits_of(total)]
            found.append((part.begin, given[0]))
        ordered = [bits for _, bits in sorted(found, key=lambda each: each[0])]
        return np.concatenate(ordered).reshape(-1, 1) if ordered else None

    def own_keys(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """Plain memory alone where a window is no other memory; each algorithm, if wanted."""
        buffers = wanted if self.hosts.count == 1 else (PLAIN,)
        if not self.point.algorithms or len(self.ways) == 1:
            return buffers
        return buffers + tuple(way.key(buffer) for buffer in buffers for way in self.ways)

    def algorithm(self) -> Algorithm:
        """The algorithm that the library takes."""
        return self.ways[0]

    def own(self, key: str) -> Variant:
        """The call with x in plain memory or in a window, perhaps forced to one algorithm."""
        name, _, buffer = key.rpartition(" ")
        forced = next((way for way in self.ways if way.name == name), None)
        return self.called(key, key, self.backend, buffer == WINDOW, forced)

    def others(self) -> Iterator[tuple[str, Maker]]:
        if self.place.backend:
            yield from self.place.others(self)
            return
        if self.hosts.count == 1 and self.moved_bytes:
            yield LIMIT, self._limit
        if UCX in self.peers.wanted and self.hosts.count == 1:
            yield UCX, partial(self.called, UCX, f"{PLAIN}, backend ucx", UCX, False)
        for key, label, steps, cores in self.peers.collective(self):
            yield key, partial(self._by_steps, key, label, steps, cores)
        if self.moved_bytes:
            yield from link_variants(self, self.moved_bytes // self.size)

    def x_of(self, rank: int) -> Bits:
        """A rank's x as it is before the first call, on the host; it is not written to."""
        key = self.point.title, self.seed, rank
        x: Bits = self.place.shared(key, partial(self._drawn, rank))
        return x

    def _drawn(self, rank: int) -> Bits:
        x, host = np.empty((self.x_rows(rank), 1), self.element.bits), Element(self.point.dtype)
        self._fill(x, rank, host)
        return x

    def buffers(self, comm: Any = None) -> tuple[Bits | None, Bits, Bits | None]:
        """What is rewritten, x, and the result; x in a window if `comm` is given."""
        rows, bits = self.x_rows(self.rank), self.element.bits
        x: Any = comm.empty((rows, 1), bits) if comm else self.element.matrix(rows, 1)
        if self.place.backend:
            x.write(self.x_of(self.rank))
        else:
            self._fill(x, self.rank, self.element)
        return x, x, self.element.poisoned(self.result_rows(), 1)

    def _fill(self, x: Bits, rank: int, element: Element) -> None:
        element.fill_whole(x, (self.seed, rank), self.size)

    def called(
        self, key: str, label: str, backend: str, window: bool, forced: Algorithm | None = None
    ) -> Variant:
        """A call of collops on a backend; `window`: x lies in one."""
        comm = self.connect(backend, forced.tuning if forced else "")
        rewritten, x, result = self.buffers(comm if window else None)
        run = self.call(comm, x, x if result is None else result)
        facts = {"algorithm": (forced or self.algorithm()).name}
        return Variant(key, label, [("move", run)], rewritten, result, facts=facts)

    def _by_steps(self, key: str, label: str, steps: Any, cores: frozenset[int]) -> Variant:
        rewritten, x, result = self.buffers()
        made = list(steps(x, x if result is None else result))
        return Variant(key, label, made, rewritten, result, cores=cores)

    def _limit(self) -> Variant:
        """The copies alone, from vectors that all ranks see."""
        bits, parts = self.element.bits, self.parts()
        xs = shared_vectors(self.work, self.x_rows(self.rank), bits)
        result = self.element.poisoned(self.result_rows(), 1)
        results = [result.reshape(-1)] * self.size
        if any(part.of_results for part in parts):
            results = shared_vectors(self.work, result.size, bits)
            result = results[self.rank].reshape(-1, 1)
        x = xs[self.rank].reshape(-1, 1)
        self._fill(x, self.rank, self.element)
        if not parts:  # what others copy from this rank is its result, too
            result = x
        run = copies(parts, xs, results, self.rank)
        # Sums of bits are not those of numbers.
        sums = any(len(part.sources) > 1 for part in parts)
        return Variant(LIMIT, LIMIT, [("move", run)], x, None if sums else result)


class Collective(Operator):
    """A row of the table in operators/collectives.py; `variants` says what it moves and calls."""

    epilog, quick, plotted = _HELP, "1 KiB and 64 KiB", "draw time and bandwidth by size"
    reference, torch_columns, several_hosts = PLAIN, "gloo", True
    peers, dtypes = ("mpi", "gloo", UCX, *LINK_PEERS), ("f32",)

    def __init__(
        self,
        variants: type[CollectiveVariants],
        title: str,
        bytes_are: str = "",  # what --sizes counts, for the help; empty: the call has no data
        *,
        skewed: bool = False,  # whether ranks may have different numbers of elements
        divided: bool = False,  # whether the ranks must divide the number of elements
        on_gpu: bool = False,  # whether its call takes a stream
    ) -> None:
        self.name, self.title, self.variants = variants.name, title, variants  # type: ignore[misc]
        self.description = f"Times {title} by the size of the vector, as nccl-tests does."
        self.own = (PLAIN, WINDOW) if bytes_are else (PLAIN,)
        self.on_gpu = (PLAIN,) if on_gpu else ()
        self._bytes_are, self._skewed, self._divided = bytes_are, skewed, divided

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """--ranks and --algorithms; where there are data --sizes and --buffers, perhaps --skew."""
        add = parser.add_argument
        parser.set_defaults(sizes=None, skew=(EVEN,))
        add(
            "--ranks",
            type=lambda text: counts(text, ","),
            metavar="2,4",
            help="numbers of ranks on this host, one launch for each (2)",
        )
        add(
            "--algorithms",
            action="store_true",
            help="also measure each algorithm that the library can choose, if there are several",
        )
        if not self._bytes_are:
            return
        add(
            "--sizes",
            type=sizes_of,
            metavar="1k,1m",
            help=f"{self._bytes_are}, with k, m or g for a power of 1024 ({_DEFAULTS})",
        )
        if self._skewed:
            add(
                "--skew",
                type=skews,
                default=_SKEWS,
                metavar="even,3:5",
                help=f"distribution over the ranks: {WORDS} ({','.join(_SKEWS)})",
            )
        add(
            "--buffers",
            dest="own",
            type=lambda text: words(text, (PLAIN, WINDOW)),
            metavar=f"{PLAIN},{WINDOW}",
            help="memory of x: plain, or a window of comm.empty(), which peers read in place "
            "(both)",
        )

    def points(self, options: argparse.Namespace) -> list[Point]:
        launched: int = options.launched
        given: tuple[int, ...] = options.ranks or (launched or 2,)
        if launched and given != (launched,):
            raise ValueError(f"--ranks {','.join(map(str, given))}: {launched} ranks are started")
        if min(given) < 2:
            raise ValueError(f"--ranks {min(given)}: at least 2 are needed")
        sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
        return [
            self._point(ranks, dtype, word, size, options.algorithms)
            for ranks in dict.fromkeys(given)
            for dtype in options.dtype
            for word in options.skew
            for size in (sizes if self._bytes_are else (0,))
        ]

    def _point(self, ranks: int, dtype: str, word: str, size: int, every: bool) -> CollectivePoint:
        item = 2 if dtype == "bf16" else np.dtype(NAMES[dtype]).itemsize
        elements = size // item
        if self._divided:  # as nccl-tests rounds
            elements -= elements % ranks
        if self._bytes_are and elements < ranks:
            raise ValueError(f"--sizes {size}: fewer than one element of {dtype} for each rank")
        shared = share(elements, ranks, word)
        size = elements * item
        return CollectivePoint(dtype=dtype, size=size, skew=word, counts=shared, algorithms=every)

    def compare(self, row: Row, others: dict[str, Row]) -> Row:
        """The row with its rates, and its ratios to the limit and to the call on plain memory.

        - `algbw_gb_s`: bytes of the vector / the time.
        - `busbw_gb_s`: bytes through the busiest rank / the time.
        - `limit_ms`, `to_limit`: the time of the limit, and this time / that one.
        - `to_plain`: this time / that of the call, per byte for what moves bytes of its own.
        - `algorithm`: what collops did; None for others.
        """
        row = {"algorithm": None, **row, **dict.fromkeys(_FIGURES), "limit_wrong": False}
        has_rate = row["bytes"] and row["column"] != LATENCY
        if plain := others.get(PLAIN):
            bytes_ratio = plain["moved_bytes"] / row["moved_bytes"] if has_rate else 1
            row["to_plain"] = round(row["ms"] / plain["ms"] * bytes_ratio, 4)
        if has_rate:
            row["algbw_gb_s"] = _rate(row["moved_bytes"], row["ms"])
            if row["column"] not in LINK:
                row["busbw_gb_s"] = _rate(row["busiest_bytes"], row["ms"])
        limit = others.get(LIMIT)
        if limit and row["column"] != LIMIT:
            row["limit_ms"], row["limit_wrong"] = limit["ms"], bool(limit["wrong_ranks"])
            row["to_limit"] = round(row["ms"] / limit["ms"], 4)
        return row

    def head(self, row: Row) -> str:
        """The lines above those of a launch."""
        mpi = f", {row['mpi']}" if row["mpi"] else ""
        clock = "" if row["one_clock"] else "; times are those of the slowest rank's own call"
        said = f"Backend {row['backend']}; {machine_text(row)}; bandwidths in GB/s{clock}."
        if algorithms := row.get("algorithms"):
            said += f"\n\n{row['bench']}: {algorithms}"
        names, widths = zip(*_columns(row), strict=True)
        table = markdown_head(names, widths)
        return f"\n### {self.title}, {row['placement']}{mpi}\n\n{said}\n\n{table}"

    def text(self, rows: list[Row]) -> str:
        """A line for each variant of a point; the limit is a column of the others."""
        return "\n".join(
            markdown_row(_cells(row), [width for _, width in _columns(row)])
            for row in rows
            if row["column"] != LIMIT
        )

    def foot(self, points: list[list[Row]]) -> str:
        """The library's choice at each size, where algorithms were forced beside it."""
        every = [row for rows in points for row in rows]
        usual = [row for row in every if row["column"] in (PLAIN, WINDOW)]
        forced = any(row["column"].rpartition(" ")[0] == row["algorithm"] for row in every)
        return f"\n{chosen(usual)}" if forced else ""

    def save_plot(self, path: Path, points: list[list[Row]]) -> None:
        """For each launch, element type and skew a row of two panels: time and bandwidth."""
        from collops.bench.plot import Panel, save_panels

        groups: dict[str, list[Row]] = {}
        for rows in points:
            mpi = f", {rows[0]['mpi']}" if rows[0]["mpi"] else ""
            name = f"{rows[0]['bench']}, {rows[0]['placement']}{mpi}, {rows[0]['dtype']}"
            groups.setdefault(f"{name}, {rows[0]['skew']}", []).extend(rows)
        panels = []
        for title, rows in groups.items():
            # A barrier has no bytes, and LATENCY no rate.
            moved = [row for row in rows if row["bytes"] and row["column"] != LATENCY]
            both = (("us, median", rows, "ms", 1e3), ("algbw, GB/s", moved, "algbw_gb_s", 1.0))
            panels += [
                Panel(title, "bytes", name, series(drawn, key, factor), dashed=LIMIT)
                for name, drawn, key, factor in both
            ]
        save_panels(path, panels, across=2)


def series(
    rows: list[Row], key: str, factor: float = 1.0
) -> dict[str, tuple[list[float], list[float]]]:
    """For each variant's label, the sizes and a figure in the order of the sizes."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for row in sorted(rows, key=lambda row: int(row["bytes"])):
        sizes, values = found.setdefault(row["label"], ([], []))
        sizes.append(row["bytes"])
        values.append(row[key] * factor)
    return found


def described(algorithms: Sequence[Algorithm]) -> str:
    """How many there are, and what the ranks do in each."""
    many = "one algorithm," if len(algorithms) == 1 else f"{len(algorithms)} algorithms."
    return f"{many} {'; '.join(f'{each.name}: {each.how}' for each in algorithms)}."


def chosen(rows: Sequence[Row]) -> str:
    """Which algorithm the library took at each size."""
    sizes: dict[str, set[int]] = {}
    for row in rows:
        sizes.setdefault(row["algorithm"], set()).add(row["bytes"])
    ways = "; ".join(
        f"{name} at {', '.join(map(size_text, sorted(found)))}" for name, found in sizes.items()
    )
    return f"The library chose {ways}."


def _rate(num_bytes: int, ms: float) -> float:
    return round(num_bytes / ms * 1e-6, 6)


def place_text(flag_us: tuple[float | None, float | None]) -> str:
    """Whether the ranks' cores were near each other before and after a point, and the times."""
    if None in flag_us:
        return "-"
    near = {value is not None and value < NEAR_US for value in flag_us}
    word = "moved" if len(near) > 1 else "near" if near == {True} else "far"
    return f"{word} {flag_us[0]:.2f}/{flag_us[1]:.2f}"


def _columns(row: Row) -> list[tuple[str, int]]:
    """Head and width of each column of a row's table."""
    wide = {"variant": _ALGORITHMS_WIDTH} if row.get("algorithms") else {}
    return [(name, wide.get(name, width)) for name, width in _COLUMNS]


def _cells(row: Row) -> list[str]:
    wrong, num_bytes = row["wrong_ranks"], row["bytes"]
    limit_us = None if row["limit_ms"] is None else row["limit_ms"] * 1e3
    named = (str(num_bytes), str(row["count"]), row["dtype"], row["skew"])
    return [
        *(named if num_bytes else ("-",) * len(named)),
        row["label"],
        *(number(row[key] * 1e3, ".2f") for key in ("ms_min", "ms", "ms_p95")),
        *(number(row[key], ".3f") for key in ("algbw_gb_s", "busbw_gb_s")),
        "WRONG" if row["limit_wrong"] else number(limit_us, ".2f"),
        *(number(row[key], ".2f") for key in ("to_limit", "to_plain")),
        "-" if wrong is None else "WRONG" if wrong else "ok",
        place_text(row["flag_us"]),
    ]
