"""The tables of ``collops bench linear_parallel``, in markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from collops.bench.operators.linear_parallel.report import Row, best, points_of

_POINT = ("", "ms", "p10 .. p90", "of peak", "/ GEMM alone", "/ fused", "adds MiB", "result")
_SUMMARY = (
    "type, ranks, dtype, M,K,N",
    "MPI",
    "GEMM of peak",
    "fused / GEMM",
    "plain x / GEMM",
    "fused / unfused",
    "MPI / fused",
    "gloo / fused",
)
_SWEEP = (
    "type, ranks, dtype, M,K,N",
    "fused ms",
    "plain x ms",
    "unfused ms",
    "fused / unfused",
    "plain x / unfused",
)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table whose columns are aligned; all but the first to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]

    def aligned(line: Sequence[str]) -> str:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        return f"| {' | '.join(cells)} |"

    return "\n".join(aligned(line) for line in [lines[0], rule, *lines[1:]])


def point_table(rows: list[Row]) -> str:
    """All columns of one point of one launch."""
    first = rows[0]
    before, after = first["place_us"]
    lines = [
        f"### {title(first)}{', ' + first['mpi'] if first['mpi'] else ''}\n",
        f"Rows {first['gather_rows']} gathered, {first['scatter_rows']} scattered; "
        f"{first['threads']} thread(s) a rank, {first['isa']}; {first['iterations']} rounds; "
        f"a barrier took {before} us before, {after} us after; "
        f"peak {_text(first['peak_gflops'], '.1f')} GFLOP/s a rank.\n",
    ]
    return "\n".join([*lines, table(_POINT, [_cells(row) for row in rows])]) + "\n"


def title(row: Row) -> str:
    """How a point is called."""
    gather, scatter = row["grid"]
    shape = f"{row['m']},{row['k']},{row['n']}"
    return f"type {row['type']}, {gather}x{scatter}, {row['dtype']}, {shape}"


def _cells(row: Row) -> list[str]:
    wrong = row["wrong_ranks"]
    return [
        row["label"],
        f"{row['ms']:.3f}",
        f"{row['ms_p10']:.3f} .. {row['ms_p90']:.3f}",
        _text(row["peak_fraction"], ".3f"),
        _text(row["to_gemm"], ".3f"),
        _text(row["to_fused"], ".3f"),
        _text(row["memory_mib"], ".1f"),
        "" if wrong is None else f"WRONG on {wrong} rank(s)" if wrong else "ok",
    ]


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def summary_table(rows: list[Row]) -> str:
    """One line per point of a launch: the ratios that matter, all from inside one run."""
    lines = []
    for point in points_of(rows):
        columns = {row["column"]: row for row in point}
        fused, gemm = columns["fused_window"], columns["gemm"]
        lines.append(
            [
                title(fused),
                fused["mpi"] or "-",
                _text(gemm["peak_fraction"], ".3f"),
                _text(fused["to_gemm"], ".3f"),
                _text(columns["fused"]["to_gemm"], ".3f"),
                _by(fused, columns.get("unfused")),
                _by(best(point, "mpi"), fused),
                _by(best(point, "gloo"), fused),
            ]
        )
    return "### Summary\n\n" + table(_SUMMARY, lines)


def _by(row: Row | None, other: Row | None) -> str:
    return f"{row['ms'] / other['ms']:.3f}" if row and other else "-"


def sweep_table(rows: list[Row]) -> str:
    """Fused against unfused for each M, and the medians of each type and dtype."""
    lines, ratios = [], dict[str, list[tuple[float, float]]]()
    for point in points_of(rows):
        columns: dict[str, Any] = {row["column"]: row for row in point}
        fused, plain, unfused = (columns[key] for key in ("fused_window", "fused", "unfused"))
        pair = fused["ms"] / unfused["ms"], plain["ms"] / unfused["ms"]
        group = title(fused).rpartition(", ")[0]
        ratios.setdefault(group, []).append(pair)
        times = [f"{row['ms']:.3f}" for row in (fused, plain, unfused)]
        lines.append([title(fused), *times, *(f"{ratio:.3f}" for ratio in pair)])
    for group, pairs in ratios.items():
        medians = [f"{statistics.median(values):.3f}" for values in zip(*pairs, strict=True)]
        lines.append([f"{group}: median", "", "", "", *medians])
    return "### Sweep\n\n" + table(_SWEEP, lines)
