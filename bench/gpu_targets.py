"""The goals of collops on one GPU with 8 ranks, compared with rows of `collops bench`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Row = dict[str, Any]
Points = dict[tuple[Any, ...], dict[str, Row]]
# The size of the long messages, and of the short one.
_LONG, _SHORT = 64 << 20, 1 << 10
_RANKS = 8
# Grouped NCCL moves each byte more often.
_BESIDE_NCCL = {"all_gather_v": 1.4, "reduce_scatter_v": 2.0}
_FUSED = {1024: 1.15, 4096: 1.05}


def judged(rows: list[Row]) -> list[Row]:
    """Each goal, the measured figure or None, and whether that reaches the goal.

    A row of a simulated GPU is no measurement.
    """
    points: Points = {}
    for row in rows:
        if row["ranks"] == _RANKS and not row["simulated"]:
            key = row["bench"], row.get("bytes"), row.get("skew"), row.get("m"), row.get("type")
            points.setdefault(key, {})[row["column"]] = row
    found = []
    for goal, least, most, value in [*_collectives(points), *_products(points)]:
        reached = None
        if value is not None:
            reached = value >= least if least is not None else value <= most
        figure = None if value is None else round(value, 4)
        found.append({"goal": goal, "at_least": least, "at_most": most, "found": figure})
        found[-1]["reached"] = reached
    return found


_Goal = tuple[str, "float | None", "float | None", "float | None"]


def _collectives(points: Points) -> Iterator[_Goal]:
    for name, beside in _BESIDE_NCCL.items():
        long = {skew: points.get((name, _LONG, skew, None, None), {}) for skew in ("even", "3:1")}
        yield (
            f"{name}, 64 MiB: copy ceiling / time", 0.8, None,
            _ratio(long["even"].get("limit"), long["even"].get("plain")),
        )  # fmt: skip
        yield (
            f"{name}, 64 MiB: grouped NCCL / time", beside, None,
            _ratio(long["even"].get("nccl"), long["even"].get("plain")),
        )  # fmt: skip
        yield (
            f"{name}, 64 MiB: +-50 % skew / even", None, 1.05,
            _ratio(long["3:1"].get("plain"), long["even"].get("plain")),
        )  # fmt: skip
    short = points.get(("all_gather_v", _SHORT, "even", None, None), {}).get("plain")
    in_graph = short is not None and short["graph"]
    yield (
        "all_gather_v, 1 KiB in a graph: us", None, 6.0,
        short["ms"] * 1e3 if short is not None and in_graph else None,
    )  # fmt: skip


def _products(points: Points) -> Iterator[_Goal]:
    for rows, most in _FUSED.items():
        for kind in (1, 2):
            found = points.get(("linear_parallel", None, None, rows, kind), {})
            value = _ratio(found.get("fused"), found.get("gemm"))
            yield f"linear_parallel type {kind}, M = {rows}: fused / GEMM alone", None, most, value


def _ratio(row: Row | None, by: Row | None) -> float | None:
    return row["ms"] / by["ms"] if row and by else None
