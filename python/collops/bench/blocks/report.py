"""Rates and ratios of a benchmark of blocks, each formed inside one run."""

from __future__ import annotations

from collections.abc import Callable

from collops.bench.blocks.points import size_text
from collops.bench.operator import Lines, Row
from collops.bench.tables import milliseconds, number

OWN, WINDOW, EXCHANGE, ONE_WAY, LATENCY = "own", "window", "exchange", "ucx_tag_bw", "ucx_tag_lat"
RATIOS = {"GB/s": "gb_s", "/ collops": "to_own"}
_SUMMARY = "ms|GB/s|of exchange|of one-way tag_bw|gloo / collops|one-way latencies"


def compare(row: Row, others: dict[str, Row]) -> Row:
    """The row with its rate, and its ratio to collops' call.

    - `gb_s`: bytes of all blocks, in both directions together, / the time.
    - `to_own`: its time per byte / the time per byte of collops' call.
    """
    own = others[OWN]
    row = {**row, "gb_s": None, "to_own": None}
    if row["column"] != LATENCY:
        row["gb_s"] = round(_rate(row), 7)
        row["to_own"] = round(_rate(own) / _rate(row), 4)
    return row


def _rate(row: Row) -> float:
    return float(row["moved_bytes"] / row["ms"] * 1e-6)


def title_of(name: str) -> Callable[[Row], str]:
    """A function that names a row's point in tables and plots."""
    return lambda row: (
        f"{name}, {row['placement']}, {row['dtype']}, "
        f"{size_text(row['bytes_per_rank'])} per rank, {row['spread']}"
    )


def headline(row: Row, text: str) -> str:
    """The line above the table of a row's point."""
    clock = "" if row["one_clock"] else "; times are those of the slowest rank's own call"
    return (
        f"Elements per rank {list(row['counts'])}; backend {row['backend']}; "
        f"{row['calls']} call(s) a round; {text}{clock}."
    )


def summary(points: list[list[Row]]) -> Lines:
    """The summary table: one line per point of a launch."""
    lines = []
    for rows in points:
        variants = {row["column"]: row for row in rows}
        own = variants[OWN]
        gloo = [row["ms"] for row in rows if row["column"].startswith("gloo")]
        latency = variants.get(LATENCY)
        lines.append(
            [
                f"{own['placement']}, {own['dtype']}, {size_text(own['bytes_per_rank'])}, "
                f"{own['spread']}",
                milliseconds(own["ms"]),
                number(own["gb_s"], ".3f"),
                _share(variants.get(EXCHANGE)),
                _share(variants.get(ONE_WAY)),
                number(min(gloo) / own["ms"] if gloo else None, ".2f"),
                number(own["ms"] / latency["ms"] if latency else None, ".2f"),
            ]
        )
    return ("ranks, dtype, bytes per rank", *_SUMMARY.split("|")), lines


def _share(row: Row | None) -> str:
    """collops' rate as a part of another variant's."""
    return number(row["to_own"] if row else None, ".3f")
