"""The options of a benchmark of a collective, and the points that they select."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np

from collops.bench.collectives.skew import EVEN, WORDS, share, skews
from collops.bench.elements import NAMES
from collops.bench.request import Point
from collops.terminal.arguments import count, counts, words

SIZES = (1 << 10, 64 << 10, 1 << 20, 16 << 20)
QUICK_SIZES = (1 << 10, 64 << 10)
PLAIN, WINDOW = "plain", "window"
_SKEWS = (EVEN, "3:5")
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# Calls of a variant in its turn, up to such a size.
_BURSTS = ((64 << 10, 10), (4 << 20, 3))


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What the options of a collective must know of it."""

    bytes_are: str  # help text: what --sizes counts; empty: the call has no data
    skewed: bool = False  # whether ranks may have different numbers of elements
    divided: bool = False  # whether the ranks must divide the number of elements


@dataclass(frozen=True, kw_only=True)
class CollectivePoint(Point):
    """One size of vector, shared out in one way."""

    size: int  # bytes of the vector
    skew: str
    counts: tuple[int, ...]  # each rank's elements of it
    algorithms: bool = False  # whether each algorithm is measured, too

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.counts)

    @property
    def elements(self) -> int:
        """Elements of the vector."""
        return sum(self.counts)

    @property
    def title(self) -> str:
        """The name of the point in notes."""
        return f"{self.ranks} ranks, {self.dtype}, {self.size} bytes, {self.skew}"

    @property
    def burst(self) -> int:
        """More calls where they are short."""
        return next((calls for size, calls in _BURSTS if self.size <= size), 1)

    def describe(self) -> dict[str, Any]:
        """The parameters of the point, for every row."""
        return {
            "bytes": self.size,
            "count": self.elements,
            "dtype": self.dtype,
            "skew": self.skew,
            "ranks": self.ranks,
            "counts": self.counts,
        }


def add_options(kind: Kind, parser: argparse.ArgumentParser) -> None:
    """Adds the options of a collective."""
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
    if not kind.bytes_are:
        return
    add(
        "--sizes",
        type=_sizes,
        metavar="1k,1m",
        help=f"{kind.bytes_are}, with k, m or g for a power of 1024 ({','.join(_DEFAULTS)})",
    )
    if kind.skewed:
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
        help="memory of x: plain, or a window of comm.empty(), which peers read in place (both)",
    )


def make_points(kind: Kind, options: argparse.Namespace) -> list[Point]:
    """The points in the order of the table.

    Raises:
        ValueError: the arguments do not fit together.
    """
    launched: int = options.launched
    given: tuple[int, ...] = options.ranks or (launched or 2,)
    if launched and given != (launched,):
        raise ValueError(f"--ranks {','.join(map(str, given))}: {launched} ranks are started")
    if min(given) < 2:
        raise ValueError(f"--ranks {min(given)}: at least 2 are needed")
    sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    return [
        _point(kind, ranks, dtype, word, size, options.algorithms)
        for ranks in dict.fromkeys(given)
        for dtype in options.dtype
        for word in options.skew
        for size in (sizes if kind.bytes_are else (0,))
    ]


def _point(
    kind: Kind, ranks: int, dtype: str, word: str, size: int, algorithms: bool
) -> CollectivePoint:
    item = 2 if dtype == "bf16" else np.dtype(NAMES[dtype]).itemsize
    elements = size // item
    if kind.divided:  # as nccl-tests rounds
        elements -= elements % ranks
    if kind.bytes_are and elements < ranks:
        raise ValueError(f"--sizes {size}: fewer than one element of {dtype} for each rank")
    return CollectivePoint(
        dtype=dtype,
        size=elements * item,
        skew=word,
        counts=share(elements, ranks, word),
        algorithms=algorithms,
    )


def size_text(size: int) -> str:
    """A number of bytes in the largest unit that divides it, such as "64k"."""
    for name, unit in reversed(_UNITS.items()):
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


_DEFAULTS = tuple(map(size_text, SIZES))


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(size_of(part.strip()) for part in text.split(","))


def size_of(text: str) -> int:
    """A number of bytes, with k, m or g for a power of 1024."""
    unit = _UNITS.get(text[-1:].lower(), 1)
    try:
        return count(text[:-1] if unit > 1 else text) * unit
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"a number of bytes of 1 or more, with or without k, m or g, is needed, got {text!r}"
        ) from None
