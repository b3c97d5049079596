"""Rates and ratios of a collective, and the lines of its table, as nccl-tests prints them."""

from __future__ import annotations

from collops.bench.collectives.algorithms import chosen
from collops.bench.collectives.flag import NEAR_US
from collops.bench.collectives.points import PLAIN, WINDOW
from collops.bench.operator import Row
from collops.bench.tables import machine_text, number
from collops.terminal.tables import markdown_head, markdown_row

LIMIT = "limit"
# What loads the link between hosts with bytes of its own. LATENCY is the time of one message.
EXCHANGE, ONE_WAY, LATENCY, IPERF = LINK = ("exchange", "ucx_tag_bw", "ucx_tag_lat", "iperf3")
# Head and width of each column; a wider cell moves those behind it.
_COLUMNS = (
    *(("bytes", 10), ("count", 10), ("dtype", 5), ("skew", 9), ("variant", 7)),
    *(("us min", 9), ("median", 9), ("p95", 9), ("algbw", 7), ("busbw", 7)),
    *(("limit us", 9), ("/ limit", 7), ("/ plain", 7), ("check", 5), ("flag us", 15)),
)
# Of the column of variants, where they are named after algorithms, too.
_ALGORITHMS_WIDTH = 14
_FIGURES = ("algbw_gb_s", "busbw_gb_s", "limit_ms", "to_limit", "to_plain")


def compare(row: Row, others: dict[str, Row]) -> Row:
    """The row with its rates, and its ratios to the limit and to collops's call on plain memory.

    - `algbw_gb_s`: bytes of the vector / the time.
    - `busbw_gb_s`: bytes through the busiest rank / the time.
    - `limit_ms`, `to_limit`: the time of the limit, and this time / that one.
    - `to_plain`: this time / that of the call, per byte for what moves bytes of its own.
    - `algorithm`: what collops did; None for others.
    """
    row = {"algorithm": None, **row, **dict.fromkeys(_FIGURES), "limit_wrong": False}
    has_rate = row["bytes"] and row["column"] != LATENCY
    if plain := others.get(PLAIN):
        bytes_ratio = plain["moved_bytes"] / row["moved_bytes"] if has_rate else 1
        row["to_plain"] = round(row["ms"] / plain["ms"] * bytes_ratio, 4)
    if has_rate:
        row["algbw_gb_s"] = _rate(row["moved_bytes"], row["ms"])
        if row["column"] not in LINK:
            row["busbw_gb_s"] = _rate(row["busiest_bytes"], row["ms"])
    limit = others.get(LIMIT)
    if limit and row["column"] != LIMIT:
        row["limit_ms"], row["limit_wrong"] = limit["ms"], bool(limit["wrong_ranks"])
        row["to_limit"] = round(row["ms"] / limit["ms"], 4)
    return row


def _rate(num_bytes: int, ms: float) -> float:
    return round(num_bytes / ms * 1e-6, 6)


def place_text(flag_us: tuple[float | None, float | None]) -> str:
    """Whether the ranks' cores were near each other before and after a point, and the times."""
    if None in flag_us:
        return "-"
    near = {value is not None and value < NEAR_US for value in flag_us}
    word = "moved" if len(near) > 1 else "near" if near == {True} else "far"
    return f"{word} {flag_us[0]:.2f}/{flag_us[1]:.2f}"


def head(title: str, row: Row) -> str:
    """The lines above those of a launch."""
    mpi = f", {row['mpi']}" if row["mpi"] else ""
    clock = "" if row["one_clock"] else "; times are those of the slowest rank's own call"
    said = f"Backend {row['backend']}; {machine_text(row)}; bandwidths in GB/s{clock}."
    if algorithms := row.get("algorithms"):
        said += f"\n\n{row['bench']}: {algorithms}"
    names, widths = zip(*_columns(row), strict=True)
    return f"### {title}, {row['placement']}{mpi}\n\n{said}\n\n{markdown_head(names, widths)}"


def lines(rows: list[Row]) -> list[str]:
    """A line for each variant of a point; the limit is a column of the others."""
    return [
        markdown_row(_cells(row), [width for _, width in _columns(row)])
        for row in rows
        if row["column"] != LIMIT
    ]


def foot(points: list[list[Row]]) -> str:
    """The library's choice at each size, where algorithms were forced beside it."""
    every = [row for rows in points for row in rows]
    usual = [row for row in every if row["column"] in (PLAIN, WINDOW)]
    forced = any(row["column"].rpartition(" ")[0] == row["algorithm"] for row in every)
    return chosen(usual) if forced else ""


def _columns(row: Row) -> list[tuple[str, int]]:
    """Head and width of each column of a row's table."""
    if not row.get("algorithms"):
        return list(_COLUMNS)
    wide = {"variant": _ALGORITHMS_WIDTH}
    return [(name, wide.get(name, width)) for name, width in _COLUMNS]


def _cells(row: Row) -> list[str]:
    wrong, num_bytes = row["wrong_ranks"], row["bytes"]
    limit_us = None if row["limit_ms"] is None else row["limit_ms"] * 1e3
    limit = "WRONG" if row["limit_wrong"] else number(limit_us, ".2f")
    return [
        str(num_bytes) if num_bytes else "-",
        str(row["count"]) if num_bytes else "-",
        row["dtype"] if num_bytes else "-",
        row["skew"] if num_bytes else "-",
        row["label"],
        *(number(row[key] * 1e3, ".2f") for key in ("ms_min", "ms", "ms_p95")),
        *(number(row[key], ".3f") for key in ("algbw_gb_s", "busbw_gb_s")),
        limit,
        *(number(row[key], ".2f") for key in ("to_limit", "to_plain")),
        "-" if wrong is None else "WRONG" if wrong else "ok",
        place_text(row["flag_us"]),
    ]
