"""LinearParallel beside its parts, its pipeline, and torch with MPI or gloo."""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from collops.bench.operator import Operator, Point, Row
from collops.bench.operators.linear_variants import LEAVES, OWN, LinearPoint, LinearVariants
from collops.bench.tables import number, point_table
from collops.terminal.arguments import count, counts, words
from collops.terminal.tables import markdown_table

SHAPES = ((512, 4096, 4096), (2048, 4096, 1024), (64, 4096, 11008))
_QUICK_SHAPES = ((24, 96, 80), (5, 33, 49))
_TYPES = ("1", "2", "4")
FUSED = ("fused_window", "fused", "packed", "pipeline")
UNPLOTTED = ("read", "peak")  # variants that are limits
_SWEPT = ("fused_window", "fused", "unfused", "gemm", "peak")
_POINT = "type, ranks, dtype, M,K,N"
_BESIDE = (
    "GEMM of peak|fused / GEMM|plain x / GEMM|fused / unfused|MPI / fused|gloo / fused|"
    "packed GEMM / limit|packed / packed GEMM|MPI / packed"
)
_SWEEP = "fused ms|plain x ms|unfused ms|fused / unfused|plain x / unfused"
# The column heads of a table and the cells of its lines.
Lines = tuple[tuple[str, ...], list[list[str]]]


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


class LinearParallel(Operator):
    """The operator's options, points and tables."""

    name = "linear_parallel"
    description = (
        "Times LinearParallel fused, as a pipeline and unfused, torch.matmul with MPI and with "
        "gloo, the product alone, and the arithmetic peak."
    )
    epilog = (
        "Without arguments: types 1 and 2 on 2 ranks and type 4 on 2x2, rows shared out 3:5, in "
        "float32,\nbfloat16 and float16, for the products 512,4096,4096, 2048,4096,1024 and "
        "64,4096,11008."
    )
    quick = "tiny products"
    own, on_gpu, reference = tuple(OWN), ("fused", "unfused", "gemm"), "fused_window"
    peers = usual_peers = ("mpi", "gloo", "torch", "numpy")
    torch_columns = "torch.matmul, MPI and gloo"
    variants = LinearVariants
    ratios = {  # noqa: RUF012
        "of peak": "peak_fraction",
        "/ limit": "to_limit",
        "/ GEMM alone": "to_gemm",
        "/ fused": "to_fused",
    }
    # Part of a call -> its name in plots, in the order of the stack.
    parts = {  # noqa: RUF012
        "gather": "gather",
        "gemm": "GEMM",
        "scatter": "scatter",
        "reduce": "reduce",
        "exposed": "communication that shows",
    }

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--type", type=lambda text: words(text, _TYPES), metavar="1,2,4", help="ATB's types")
        add(
            "--ranks",
            type=count,
            metavar="N",
            help="number of ranks (2; for type 4 that of the grid)",
        )
        add("--grid", type=_grid, metavar="AGxRS", help="the grid of type 4 (2x2)")
        add(
            "--rows-share",
            type=lambda text: counts(text, ":"),
            default=(3, 5),
            metavar="3:5",
            help="shares of the rows on the members of a group (3:5)",
        )
        add(
            "--shapes",
            type=_shapes,
            metavar="M,K,N;...",
            help="one rank's product, after gathering",
        )
        add(
            "--leaves",
            type=lambda text: counts(text, ","),
            default=(),
            metavar="8,16",
            help="also the fused call and the product alone in so many leaves",
        )
        add("--sweep", action="store_true", help="M = 1, 2, 4 ... 2048: fused against unfused")

    def settle(self, options: argparse.Namespace) -> None:
        """A sweep has its own variants, and no other library."""
        if options.sweep:
            options.own, options.peers = _SWEPT, ()
        for leaves in options.leaves:
            cut = (f"{key}{LEAVES}{leaves}" for key in (self.reference, "gemm"))
            options.own = (*options.own, *cut)

    def points(self, options: argparse.Namespace) -> list[Point]:
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

    def compare(self, row: Row, others: dict[str, Row]) -> Row:
        """The row with its ratios to other variants of its point.

        - `peak_fraction`: the product's multiplications and additions / its time / the peak.
        - `to_gemm`: its time / the time of the product alone, with a packed weight of that one.
        - `to_limit`: its time / the longer of the weight's reading and the arithmetic at the peak.
        - `to_fused`: its time / that of the fused call, with x in a window where there are any.
        """
        key, peak = row["column"], others.get("peak", {}).get("gflops")
        row = {**row, "peak_gflops": peak, "peak_fraction": _ratio(row["gflops"], peak)}
        gemm = "gemm_packed" if key == "packed" else "gemm"
        for name, other in (("to_gemm", gemm), ("to_fused", _fused(others))):
            row[name] = None
            if key not in UNPLOTTED and other in others:
                row[name] = _ratio(row["ms"], others[other]["ms"])
        row["to_limit"] = None
        if key not in UNPLOTTED and "read" in others and peak:
            arithmetic_ms = row["gflops"] * row["ms"] / peak
            row["to_limit"] = _ratio(row["ms"], max(others["read"]["ms"], arithmetic_ms))
        if key in FUSED and gemm in others:
            row["parts_ms"] = _exposed(row["ms"], others[gemm]["ms"])
        return row

    def text(self, rows: list[Row]) -> str:
        first = rows[0]
        said = (
            f"Rows {first['gather_rows']} gathered, {first['scatter_rows']} scattered; {{}}; "
            f"peak {number(first['peak_gflops'], '.1f')} GFLOP/s a rank."
        )
        return point_table(full_title(first), said, self.ratios, rows)

    def summary(self, points: list[list[Row]]) -> str:
        """One line of ratios per point of a launch, each from one run; or those of a sweep."""
        own = {row["column"] for rows in points for row in rows}
        title, lines = ("Sweep", sweep) if own == {*_SWEPT} else ("Summary", summary)
        return f"### {title}\n\n{markdown_table(*lines(points))}"

    def save_plot(self, path: Path, points: list[list[Row]]) -> None:
        """A panel for each point of each launch, with a bar for each variant."""
        from collops.bench.plot import save_bars

        drawn = [[row for row in rows if row["column"] not in UNPLOTTED] for rows in points]
        save_bars(path, self.parts, {full_title(rows[0]): rows for rows in drawn})


OPERATOR = LinearParallel()


def title(row: Row) -> str:
    """The name of a row's point in tables and plots."""
    gather, scatter = row["grid"]
    shape = f"{row['m']},{row['k']},{row['n']}"
    return f"type {row['type']}, {gather}x{scatter}, {row['dtype']}, {shape}"


def full_title(row: Row) -> str:
    """The name of a row's point, and the MPI of its launch."""
    return title(row) + (f", {row['mpi']}" if row["mpi"] else "")


def _fused(others: dict[str, Row]) -> str:
    """The fused call that counts: with x in a window, where there are any."""
    return "fused_window" if "fused_window" in others else "fused"


def _exposed(ms: float, gemm_ms: float) -> dict[str, float]:
    """The parts of a fused call: the product alone, and the rest of its time as communication."""
    return {"gemm": min(ms, gemm_ms), "exposed": round(max(ms - gemm_ms, 0.0), 5)}


def _ratio(value: float, by: float | None) -> float | None:
    return round(value / by, 4) if by else None


def best(rows: list[Row], start: str) -> Row | None:
    """The fastest variant whose name begins with `start`."""
    found = [row for row in rows if row["column"].startswith(start)]
    return min(found, key=lambda row: float(row["ms"])) if found else None


def summary(points: list[list[Row]]) -> Lines:
    """The summary table: one line of ratios per point of a launch, each from one run."""
    lines = []
    for rows in points:
        variants = {row["column"]: row for row in rows}
        fused, gemm = variants[_fused(variants)], variants["gemm"]
        packed, gemm_packed = variants.get("packed", {}), variants.get("gemm_packed", {})
        lines.append(
            [
                title(fused),
                fused["mpi"] or "-",
                number(gemm["peak_fraction"], ".3f"),
                number(fused["to_gemm"], ".3f"),
                number(variants["fused"]["to_gemm"], ".3f"),
                _by(fused, variants.get("unfused")),
                _by(best(rows, "mpi"), fused),
                _by(best(rows, "gloo"), fused),
                number(gemm_packed.get("to_limit"), ".3f"),
                number(packed.get("to_gemm"), ".3f"),
                _by(best(rows, "mpi"), packed),
            ]
        )
    return (_POINT, "MPI", *_BESIDE.split("|")), lines


def _by(row: Row | None, other: Row | None) -> str:
    return f"{row['ms'] / other['ms']:.3f}" if row and other else "-"


def sweep(points: list[list[Row]]) -> Lines:
    """The ratio of fused to unfused for each M, and the medians of each type and dtype."""
    lines, ratios = [], dict[str, list[tuple[float, float]]]()
    for rows in points:
        variants = {row["column"]: row for row in rows}
        fused, plain, unfused = (variants[key] for key in ("fused_window", "fused", "unfused"))
        pair = fused["ms"] / unfused["ms"], plain["ms"] / unfused["ms"]
        ratios.setdefault(title(fused).rpartition(", ")[0], []).append(pair)
        times = [f"{row['ms']:.3f}" for row in (fused, plain, unfused)]
        lines.append([title(fused), *times, *(f"{ratio:.3f}" for ratio in pair)])
    for group, pairs in ratios.items():
        medians = [f"{statistics.median(values):.3f}" for values in zip(*pairs, strict=True)]
        lines.append([f"{group}: median", "", "", "", *medians])
    return (_POINT, *_SWEEP.split("|")), lines
