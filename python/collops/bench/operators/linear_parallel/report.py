"""Ratios in rows and tables of LinearParallel, each formed inside one run."""

from __future__ import annotations

import statistics

from collops.bench.operator import Lines, Row
from collops.bench.tables import number

FUSED = ("fused_window", "fused", "packed", "pipeline")
_LIMITS = ("read", "peak")
_POINT = "type, ranks, dtype, M,K,N"
_BESIDE = (
    "GEMM of peak|fused / GEMM|plain x / GEMM|fused / unfused|MPI / fused|gloo / fused|"
    "packed GEMM / limit|packed / packed GEMM|MPI / packed"
)
_SWEEP = "fused ms|plain x ms|unfused ms|fused / unfused|plain x / unfused"


def compare(row: Row, others: dict[str, Row]) -> Row:
    """The row with its ratios to other variants of its point.

    - `peak_fraction`: the product's multiplications and additions / its time / the peak.
    - `to_gemm`: its time / the time of the product alone, with a packed weight of that one.
    - `to_limit`: its time / the longer of the weight's reading and the arithmetic at the peak.
    - `to_fused`: its time / the time of the fused call, with x in a window where there are any.
    """
    key, peak = row["column"], others.get("peak", {}).get("gflops")
    row = {**row, "peak_gflops": peak, "peak_fraction": _ratio(row["gflops"], peak)}
    gemm = "gemm_packed" if key == "packed" else "gemm"
    for name, other in (("to_gemm", gemm), ("to_fused", _fused(others))):
        row[name] = None
        if key not in _LIMITS and other in others:
            row[name] = _ratio(row["ms"], others[other]["ms"])
    row["to_limit"] = None
    if key not in _LIMITS and "read" in others and peak:
        arithmetic_ms = row["gflops"] * row["ms"] / peak
        row["to_limit"] = _ratio(row["ms"], max(others["read"]["ms"], arithmetic_ms))
    if key in FUSED and gemm in others:
        row["parts_ms"] = _exposed(row["ms"], others[gemm]["ms"])
    return row


def _fused(others: dict[str, Row]) -> str:
    """The fused call that counts: with x in a window, where there are any."""
    return "fused_window" if "fused_window" in others else "fused"


def _exposed(ms: float, gemm_ms: float) -> dict[str, float]:
    """The parts of a fused call: the product alone, and the rest of its time as communication."""
    return {"gemm": min(ms, gemm_ms), "exposed": round(max(ms - gemm_ms, 0.0), 5)}


def _ratio(value: float, by: float | None) -> float | None:
    return round(value / by, 4) if by else None


def title(row: Row) -> str:
    """The name of a row's point in tables and plots."""
    gather, scatter = row["grid"]
    shape = f"{row['m']},{row['k']},{row['n']}"
    return f"type {row['type']}, {gather}x{scatter}, {row['dtype']}, {shape}"


def headline(row: Row, text: str) -> str:
    """The line above the table of a row's point."""
    return (
        f"Rows {row['gather_rows']} gathered, {row['scatter_rows']} scattered; {text}; "
        f"peak {number(row['peak_gflops'], '.1f')} GFLOP/s a rank."
    )


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
