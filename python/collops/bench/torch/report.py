"""The rows of ``collops bench torch``, with their times and ratio, and the cells of its table."""

from __future__ import annotations

import statistics
from typing import Any

HEAD = (
    *("call", "way", "bytes", "collops us", "gloo us", "gloo / collops"),
    *("collops comm", "gloo comm", "results"),
)


def row_of(record: dict[str, Any]) -> dict[str, Any]:
    """A record's times in microseconds and their ratio.

    - `collops_us`: the median of the rounds, each the time of the slowest rank.
    - `gloo_us`: the 10th percentile of the same, and `gloo_median_us` the median.
    - `ratio`: gloo_us / collops_us.

    Of a call that trains, further:

    - `alone_us`: the median of the same step of each rank alone, which communicates nothing.
    - `collops_share`, `gloo_share`: the share of the step that is communication and waiting for
      the slowest rank: 1 - alone / step, each the 10th percentile of the rounds.
    """
    kept = {name: value for name, value in record.items() if not name.endswith("_s")}
    own, gloo = record["collops_s"], record["gloo_s"]
    row = {
        **kept,
        "collops_us": round(statistics.median(own) * 1e6, 2),
        "gloo_us": round(tenth(gloo) * 1e6, 2),
        "gloo_median_us": round(statistics.median(gloo) * 1e6, 2),
    }
    row["ratio"] = round(row["gloo_us"] / row["collops_us"], 3)
    if "alone_s" in record:
        row["alone_us"] = round(statistics.median(record["alone_s"]) * 1e6, 2)
        for name in ("collops", "gloo"):
            share = 1 - tenth(record["alone_s"]) / tenth(record[f"{name}_s"])
            row[f"{name}_share"] = round(max(share, 0.0), 3)
    return row


def tenth(values: list[float]) -> float:
    """The 10th percentile: a tenth of the values lie below it."""
    return sorted(values)[(len(values) - 1) // 10]


def cells(row: dict[str, Any]) -> list[str]:
    """The texts of a row, in the order of HEAD."""
    return [
        row["call"],
        row["way"],
        str(row["bytes"]) if row["bytes"] else "-",
        f"{row['collops_us']:.1f}",
        f"{row['gloo_us']:.1f}",
        f"{row['ratio']:.2f}",
        *(_share(row.get(f"{name}_share")) for name in ("collops", "gloo")),
        "equal" if row["equal"] else "DIFFER",
    ]


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
