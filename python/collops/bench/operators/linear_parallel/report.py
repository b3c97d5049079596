"""The rows that one point's record becomes: every figure beside those it is compared with."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


def rows_of(record: Row) -> list[Row]:
    """One row per column, with its ratios, which are all formed inside this one run.

    - `peak_fraction`: the product's multiplications and additions, by its time, by the peak.
    - `to_gemm`: its time by that of the product alone.
    - `to_fused`: its time by that of the fused call with x in a window.
    """
    point = {key: value for key, value in record.items() if key not in ("record", "columns")}
    columns = {column["column"]: column for column in record["columns"]}
    peak = columns.get("peak", {}).get("gflops")
    rows = []
    for key, column in columns.items():
        row = {**point, **column, "peak_gflops": peak}
        row["peak_fraction"] = _ratio(column["gflops"], peak)
        for name, other in (("to_gemm", "gemm"), ("to_fused", "fused_window")):
            row[name] = None
            if key != "peak" and other in columns:
                row[name] = _ratio(column["ms"], columns[other]["ms"])
        if key in ("fused_window", "fused", "pipeline") and "gemm" in columns:
            row["parts_ms"] = _exposed(column["ms"], columns["gemm"]["ms"])
        rows.append(row)
    return rows


def _exposed(ms: float, gemm_ms: float) -> dict[str, float]:
    """What a fused call takes beyond the product alone is communication that shows."""
    return {"gemm": min(ms, gemm_ms), "exposed": round(max(ms - gemm_ms, 0.0), 5)}


def _ratio(value: float, by: float | None) -> float | None:
    return round(value / by, 4) if by else None


def best(rows: list[Row], start: str) -> Row | None:
    """The fastest of the columns whose name begins so."""
    found = [row for row in rows if row["column"].startswith(start)]
    return min(found, key=lambda row: float(row["ms"])) if found else None


def points_of(rows: list[Row]) -> list[list[Row]]:
    """The rows of each point of each launch, in their order."""
    points: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = (row["mpi"], row["type"], *row["grid"], row["dtype"], row["m"], row["k"], row["n"])
        points.setdefault(key, []).append(row)
    return list(points.values())
