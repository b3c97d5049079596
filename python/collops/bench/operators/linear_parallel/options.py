"""The arguments of ``collops bench linear_parallel``, and the points they ask for."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from collops.bench.arguments import Parser, count, counts, words
from collops.bench.request import PEERS, Point

PROGRAM = "collops bench linear_parallel"
SHAPES = ((512, 4096, 4096), (2048, 4096, 1024), (64, 4096, 11008))
QUICK_SHAPES = ((24, 96, 80), (5, 33, 49))
TYPES = ("1", "2", "4")
DTYPES = ("f32", "bf16", "f16")
SWEEP = tuple(2**i for i in range(12))
_ITERATIONS = 15
_QUICK_ITERATIONS = 3

_EPILOG = """\
Without arguments: types 1 and 2 on 2 ranks and type 4 on 2x2, rows shared out 3:5, in float32,
bfloat16 and float16, for the products 512,4096,4096, 2048,4096,1024 and 64,4096,11008.
Every way runs in turn on the same ranks in one run; docs/bench.md says how a number is made.
Status: 0 all is well, 1 ranks failed or a result was wrong, 2 a wrong request.
"""


def make_parser() -> Parser:
    """The parser."""
    parser = Parser(
        prog=PROGRAM,
        description="Times LinearParallel fused, as a pipeline and unfused, torch.matmul with MPI "
        "and with gloo, the product alone, and the arithmetic peak.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--type", type=lambda text: words(text, TYPES), metavar="1,2,4", help="ATB's types")
    add("--ranks", type=count, metavar="N", help="ranks of types 1 and 2 (2); of the grid (4)")
    add("--grid", type=_grid, metavar="AGxRS", help="the grid of type 4 (2x2)")
    add("--shapes", type=_shapes, metavar="M,K,N;...", help="one rank's product after gathering")
    add("--dtype", type=lambda text: words(text, DTYPES), metavar=",".join(DTYPES))
    add("--rows-share", type=_shares, metavar="3:5", help="rows of the members of a group (3:5)")
    add("--iterations", type=count, metavar="N", help=f"rounds that count ({_ITERATIONS})")
    add(
        "--peers",
        type=lambda text: () if text == "none" else words(text, PEERS),
        default=PEERS,
        metavar="LIST",
        help=f"of {','.join(PEERS)}, or none (all that are installed)",
    )
    add(
        "--mpi",
        type=Path,
        action="append",
        default=[],
        metavar="PREFIX",
        help="where bin/mpiexec is; repeatable, one launch each (the mpirun on PATH)",
    )
    add("--sweep", action="store_true", help="M = 1, 2, 4 ... 2048: fused against unfused")
    add("--quick", action="store_true", help="tiny products: shows that all of it works here")
    add("--json", type=Path, metavar="FILE", help="write one JSON object per row")
    add("--plot", type=Path, metavar="FILE.png", help="draw the time as stacked parts")
    return parser


def make_points(options: argparse.Namespace) -> list[Point]:
    """The points in the order of the tables.

    Raises:
        ValueError: the arguments do not fit together.
    """
    shapes = options.shapes or (QUICK_SHAPES if options.quick else SHAPES)
    if options.sweep:
        shapes = _swept(options)
    dtypes = options.dtype or (("f32",) if options.quick else DTYPES)
    return [
        Point(
            type=kind,
            grid=_grid_of(kind, options),
            dtype=dtype,
            shape=shape,
            shares=options.rows_share or (3, 5),
        )
        for kind in map(int, options.type or TYPES)
        for dtype in dtypes
        for shape in shapes
    ]


def iterations(options: argparse.Namespace) -> int:
    """Rounds that count."""
    given: int = options.iterations or (_QUICK_ITERATIONS if options.quick else _ITERATIONS)
    return given


def threads() -> int:
    """Threads of a rank: COLLOPS_NUM_THREADS, or 1.

    Raises:
        ValueError: the variable is no whole number of 1 or more.
    """
    text = os.environ.get("COLLOPS_NUM_THREADS") or "1"
    try:
        return count(text)
    except argparse.ArgumentTypeError as problem:
        raise ValueError(f"COLLOPS_NUM_THREADS: {problem}") from None


def _swept(options: argparse.Namespace) -> tuple[tuple[int, int, int], ...]:
    """Every M of the sweep, with K and N of the one shape that may be given."""
    given = options.shapes or (QUICK_SHAPES[:1] if options.quick else SHAPES[:1])
    if len(given) > 1:
        raise ValueError(f"--sweep takes K and N of one shape, got {len(given)} shapes")
    return tuple((m, *given[0][1:]) for m in (SWEEP[:6] if options.quick else SWEEP))


def _grid_of(kind: int, options: argparse.Namespace) -> tuple[int, int]:
    if kind == 4:
        grid: tuple[int, int] = options.grid or (2, 2)
        if options.ranks not in (None, grid[0] * grid[1]):
            raise ValueError(
                f"--ranks {options.ranks} are not the {grid[0] * grid[1]} of type 4's grid "
                f"{grid[0]}x{grid[1]}: give --grid, or --type 1,2"
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


def _shares(text: str) -> tuple[int, ...]:
    return counts(text, ":")
