"""The options of a benchmark of blocks, and the points that they select."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np

from collops.bench.arguments import count, words
from collops.bench.elements import NAMES
from collops.bench.groups import share_rows
from collops.bench.request import Point

SIZES = (1 << 10, 64 << 10, 1 << 20, 4 << 20)
_QUICK_SIZES = (1 << 10, 64 << 10)
_SPREADS = ("even", "uneven")
_UNITS = {"k": 1 << 10, "m": 1 << 20}
_LEAST_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class BlockPoint(Point):
    """Blocks of one element type and size, shared out evenly or not."""

    size: int  # bytes per rank, on average
    spread: str
    counts: tuple[int, ...]  # elements of each rank's block

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.counts)

    @property
    def total_bytes(self) -> int:
        """The bytes of all blocks."""
        return sum(self.counts) * _item_bytes(self.dtype)

    @property
    def title(self) -> str:
        """The name of the point in notes."""
        return f"{self.ranks} ranks, {self.dtype}, {size_text(self.size)}, {self.spread}"

    def describe(self) -> dict[str, Any]:
        """The parameters of the point, for every row."""
        return {
            "dtype": self.dtype,
            "ranks": self.ranks,
            "bytes_per_rank": self.size,
            "spread": self.spread,
            "counts": self.counts,
        }


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this benchmark."""
    add = parser.add_argument
    add("--ranks", type=count, metavar="N", help="ranks on this host (2)")
    add("--sizes", type=_sizes, metavar="1k,1m", help="bytes per rank, on average (1k,64k,1m,4m)")
    add(
        "--counts",
        type=lambda text: words(text, _SPREADS),
        default=_SPREADS,
        metavar=",".join(_SPREADS),
        help="blocks of one length, or shared out by --rows-share (both)",
    )


def make_points(options: argparse.Namespace) -> list[Point]:
    """The points in the order of the tables.

    Raises:
        ValueError: the arguments do not fit together.
    """
    launched: int = options.launched
    if launched and options.ranks not in (None, launched):
        raise ValueError(f"--ranks {options.ranks}: {launched} ranks are started")
    ranks = launched or options.ranks or 2
    if ranks < 2:
        raise ValueError(f"--ranks {ranks}: at least 2 are needed")
    return [
        BlockPoint(
            dtype=dtype,
            size=size,
            spread=spread,
            counts=share_rows(
                ranks * size // _item_bytes(dtype),
                ranks,
                options.rows_share if spread == "uneven" else (1,),
            ),
        )
        for dtype in options.dtype
        for spread in options.counts
        for size in options.sizes or (_QUICK_SIZES if options.quick else SIZES)
    ]


def size_text(size: int) -> str:
    """A number of bytes in the largest unit that divides it, such as "64 KiB"."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} bytes"


def _item_bytes(dtype: str) -> int:
    return 2 if dtype == "bf16" else np.dtype(NAMES[dtype]).itemsize


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(_size(part.strip()) for part in text.split(","))


def _size(text: str) -> int:
    unit = _UNITS.get(text[-1:].lower(), 1)
    size = count(text[:-1] if unit > 1 else text) * unit
    if size < _LEAST_BYTES:
        raise argparse.ArgumentTypeError(f"at least {_LEAST_BYTES} bytes are needed, got {text!r}")
    return size
