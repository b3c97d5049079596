"""The options of ``collops bench linear_parallel``, and the points that they select."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any, NamedTuple

from collops.bench.groups import Group, share_rows
from collops.bench.request import Point
from collops.terminal.arguments import count, counts, words

SHAPES = ((512, 4096, 4096), (2048, 4096, 1024), (64, 4096, 11008))
_QUICK_SHAPES = ((24, 96, 80), (5, 33, 49))
_TYPES = ("1", "2", "4")


@dataclass(frozen=True, kw_only=True)
class LinearPoint(Point):
    """A type on a grid of ranks, for one element type and one product."""

    type: int
    grid: tuple[int, int]  # ranks that gather from each other, ranks that add up
    shape: tuple[int, int, int]  # M, K, N of one rank's product, after gathering
    shares: tuple[int, ...]  # how rows are shared out in a group, repeated as needed

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.grid[0] * self.grid[1]

    @property
    def title(self) -> str:
        """The name of the point in notes."""
        shape = ",".join(map(str, self.shape))
        return f"type {self.type}, {self.grid[0]}x{self.grid[1]} ranks, {self.dtype}, {shape}"

    def describe(self) -> dict[str, Any]:
        """The parameters of the point, for every row."""
        gather, scatter = Groups.of(self, 0)
        return {
            "type": self.type,
            "dtype": self.dtype,
            "ranks": self.ranks,
            "grid": self.grid,
            "gather_rows": gather.rows,
            "scatter_rows": scatter.rows,
            **dict(zip("mkn", self.shape, strict=True)),
        }


class Groups(NamedTuple):
    """The two groups of one rank; the ranks of a gather group are neighbours."""

    gather: Group
    scatter: Group

    @staticmethod
    def of(point: LinearPoint, rank: int) -> Groups:
        """The groups of a rank in a point's grid."""
        num_gather, num_scatter = point.grid
        row, column = divmod(rank, num_gather)
        gather = tuple(row * num_gather + i for i in range(num_gather))
        scatter = tuple(column + i * num_gather for i in range(num_scatter))
        m = point.shape[0]
        return Groups(
            Group(gather, column, share_rows(m, num_gather, point.shares)),
            Group(scatter, row, share_rows(m, num_scatter, point.shares)),
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this benchmark."""
    add = parser.add_argument
    add("--type", type=lambda text: words(text, _TYPES), metavar="1,2,4", help="ATB's types")
    add("--ranks", type=count, metavar="N", help="number of ranks (2; for type 4 that of the grid)")
    add("--grid", type=_grid, metavar="AGxRS", help="the grid of type 4 (2x2)")
    add(
        "--rows-share",
        type=lambda text: counts(text, ":"),
        default=(3, 5),
        metavar="3:5",
        help="shares of the rows on the members of a group (3:5)",
    )
    add("--shapes", type=_shapes, metavar="M,K,N;...", help="one rank's product, after gathering")


def make_points(options: argparse.Namespace) -> list[Point]:
    """The points in the order of the tables.

    Raises:
        ValueError: the arguments do not fit together.
    """
    usual = _QUICK_SHAPES if options.quick else SHAPES
    shapes = _swept(options) if options.sweep else options.shapes or usual
    return [
        LinearPoint(
            type=kind,
            grid=_grid_of(kind, options),
            dtype=dtype,
            shape=shape,
            shares=options.rows_share,
        )
        for kind in map(int, options.type or _TYPES)
        for dtype in options.dtype
        for shape in shapes
    ]


def _swept(options: argparse.Namespace) -> tuple[tuple[int, int, int], ...]:
    """Every M of the sweep, with K and N of the one shape that may be given."""
    given = options.shapes or (_QUICK_SHAPES[:1] if options.quick else SHAPES[:1])
    if len(given) > 1:
        raise ValueError(f"--sweep takes K and N of one shape, got {len(given)} shapes")
    return tuple((2**i, *given[0][1:]) for i in range(6 if options.quick else 12))


def _grid_of(kind: int, options: argparse.Namespace) -> tuple[int, int]:
    if kind == 4:
        grid: tuple[int, int] = options.grid or (2, 2)
        if options.ranks not in (None, grid[0] * grid[1]):
            raise ValueError(
                f"--ranks {options.ranks}: type 4's grid {grid[0]}x{grid[1]} has "
                f"{grid[0] * grid[1]} ranks: pass --grid, or --type 1,2"
            )
        return grid
    ranks: int = options.ranks or 2
    if ranks < 2:
        raise ValueError(f"--ranks {ranks}: at least 2 are needed")
    return (1, ranks) if kind == 1 else (ranks, 1)


def _grid(text: str) -> tuple[int, int]:
    sides = counts(text, "x", 2)
    if len(sides) != 2 or sides[0] * sides[1] < 2:
        raise argparse.ArgumentTypeError(f"AGxRS with at least 2 ranks is needed, got {text!r}")
    return sides[0], sides[1]


def _shapes(text: str) -> tuple[tuple[int, int, int], ...]:
    shapes: list[Any] = [counts(part.strip(), ",", 3) for part in text.split(";") if part.strip()]
    if not shapes or any(len(shape) != 3 for shape in shapes):
        raise argparse.ArgumentTypeError(f"M,K,N;M,K,N is needed, got {text!r}")
    return tuple(shapes)
