"""The goals of collops on one GPU, compared with rows of `collops bench`; tables of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Row = dict[str, Any]
Points = dict[tuple[Any, ...], dict[str, Row]]
_SHORT, _LONG = 1 << 10, 64 << 20
_NAMES = ("all_gather_v", "reduce_scatter_v")
# Most of the copies' time, most microseconds of the shortest call by ranks, and how often NCCL's
# time is that of the longest call.
_COPIES, _SHORT_US, _BESIDE_NCCL = 1.25, {8: 14.0, 2: 4.8}, 3.0
_FUSED = {1024: 1.06, 4096: 1.04}
_SKEWED = 1.05


def judged(rows: list[Row]) -> list[Row]:
    """Each goal, the measured figure or None, and whether that reaches the goal.

    A row of a simulated GPU is no measurement.
    """
    points = _points(row for row in rows if not row.get("simulated", True))
    found = []
    for goal, least, most, value in [*_collectives(points), *_products(points)]:
        reached = None
        if value is not None:
            reached = (least is None or value >= least) and (most is None or value <= most)
        figure = None if value is None else round(value, 4)
        found.append({"goal": goal, "at_least": least, "at_most": most, "found": figure})
        found[-1]["reached"] = reached
    return found


def tables(rows: list[Row]) -> str:
    """The rows in Markdown: microseconds by size for each column, and the products' ratios."""
    points = _points(rows)
    text = ["| ceiling | us | GB/s |", "|---|---|---|"]
    for row in rows:
        if "ceiling" in row:
            writes = f", {row['writes']} writes" if row["writes"] > 1 else ""
            text += [f"| {row['ceiling']}{writes} | {row['us']} | {row['gbps']} |"]
    text += [""]
    for operator, ranks in sorted({(key[0], key[1]) for key in points}, key=str):
        if operator not in _NAMES:
            continue
        sizes = sorted({k[2] for k in points if k[:2] == (operator, ranks) and k[3] == "even"})
        columns: dict[str, list[str]] = {}
        for number, size in enumerate(sizes):
            for column, row in points[operator, ranks, size, "even", None, None].items():
                cells = columns.setdefault(column, ["-"] * len(sizes))
                cells[number] = f"{row['ms'] * 1e3:.1f}"
        text += [f"| {operator}, {ranks} ranks, us | {' | '.join(map(_size, sizes))} |"]
        text += ["|---" * (len(sizes) + 1) + "|"]
        text += [f"| {name} | {' | '.join(cells)} |" for name, cells in columns.items()]
        text += [""]
    text += ["| linear_parallel | fused ms | unfused ms | product alone ms | fused / product |"]
    text += ["|---|---|---|---|---|"]
    for (operator, ranks, _, graph, m, kind), columns_of in points.items():
        if operator == "linear_parallel" and "fused" in columns_of:
            times = [columns_of.get(name) for name in ("fused", "unfused", "gemm")]
            cells = [f"{row['ms']:.3f}" if row else "-" for row in times]
            ratio = _ratio(times[0], times[2])
            name = f"type {kind}, {ranks} ranks, M = {m}{', graph' if graph else ''}"
            cells += [f"{ratio:.2f}" if ratio else "-"]
            text += [f"| {name} | {' | '.join(cells)} |"]
    return "\n".join(text) + "\n"


def _points(rows: Iterable[Row]) -> Points:
    """By operator, ranks, bytes, skew (of products: whether in a graph), M and type; by column."""
    points: Points = {}
    for row in rows:
        if row.get("backend") not in ("cuda", "nccl"):
            continue
        of_product = row["bench"] == "linear_parallel"
        if not of_product and not row.get("graph"):
            continue
        key = (
            *(row["bench"], row["ranks"], row.get("bytes")),
            *(row.get("graph") if of_product else row.get("skew"), row.get("m"), row.get("type")),
        )
        column = row["column"]
        if row.get("kernels"):
            if column != "plain":
                continue
            column = f"kernels {row['kernels']}"
        points.setdefault(key, {})[column] = row
    return points


_Goal = tuple[str, "float | None", "float | None", "float | None"]


def _collectives(points: Points) -> Iterator[_Goal]:
    for name in _NAMES:
        long = points.get((name, 8, _LONG, "even", None, None), {})
        skewed = points.get((name, 8, _LONG, "3:1", None, None), {})
        own = long.get("plain")
        yield f"{name}, 64 MiB: time / copies", None, _COPIES, _ratio(own, long.get("limit"))
        yield f"{name}, 64 MiB: NCCL / time", _BESIDE_NCCL, None, _ratio(long.get("nccl"), own)
        yield f"{name}, 64 MiB: +-50 % skew / even", None, _SKEWED, _ratio(skewed.get("plain"), own)
        for ranks in _SHORT_US:
            beside = [
                _ratio(columns.get("plain"), columns.get("nccl"))
                for key, columns in points.items()
                if key[:2] == (name, ranks) and key[3] == "even"
            ]
            known = [ratio for ratio in beside if ratio is not None]
            worst = max(known) if known else None
            yield f"{name}, {ranks} ranks, any size: time / NCCL", None, 1.0, worst
    for ranks, most in _SHORT_US.items():
        short = points.get((_NAMES[0], ranks, _SHORT, "even", None, None), {}).get("plain")
        value = short["ms"] * 1e3 if short is not None else None
        yield f"{_NAMES[0]}, 1 KiB, {ranks} ranks, in a graph: us", None, most, value


def _products(points: Points) -> Iterator[_Goal]:
    for m, most in _FUSED.items():
        for kind in (1, 2):
            found = points.get(("linear_parallel", 8, None, True, m, kind), {})
            value = _ratio(found.get("fused"), found.get("gemm"))
            yield f"linear_parallel type {kind}, M = {m}: fused / GEMM alone", None, most, value


def _ratio(row: Row | None, by: Row | None) -> float | None:
    return row["ms"] / by["ms"] if row and by else None


def _size(num_bytes: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if num_bytes < 1024:
            return f"{num_bytes} {unit}"
        num_bytes //= 1024
    return f"{num_bytes} GiB"
