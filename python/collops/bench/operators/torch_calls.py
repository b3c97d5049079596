"""Calls of torch.distributed on collops beside gloo: options, points and table, without torch."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collops.bench.operator import Operator, Request, Row, module_with_torch
from collops.terminal.arguments import count, counts, words
from collops.terminal.tables import markdown_table

CALLS = {
    "all_reduce": "all_reduce of a tensor",
    "broadcast": "broadcast from rank 0",
    "reduce": "reduce to rank 0",
    "all_gather": "all_gather into a list",
    "all_gather_single": "all_gather_into_tensor",
    "reduce_scatter": "reduce_scatter of a list",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "all_to_all_single": "all_to_all_single, equal parts",
    "gather": "gather to rank 0",
    "scatter": "scatter from rank 0",
    "barrier": "barrier, which has no size",
    "ddp": "a step of training a GPT of 6 MB under DistributedDataParallel",
    "fsdp2": "the same under fully_shard()",
    "fsdp2_windows": "the same with collops.torch.fsdp.use(); gloo's without",
}
WAYS = ("sync", "async", "functional")
SIZES = (64, 4 << 10, 64 << 10, 1 << 20, 64 << 20)
QUICK_SIZES = (64, 64 << 10)
# Calls that train, and their ways: sequences of 64 letters in a rank's batch. The more it has, the
# smaller is the share of a step that is communication.
TRAINING = ("ddp", "fsdp2", "fsdp2_windows")
SEQUENCES = {"batch-1": 1, "batch-8": 8}
FUNCTIONAL = (
    "all_reduce",
    "broadcast",
    "all_gather_single",
    "reduce_scatter_single",
    "all_to_all_single",
)
BACKENDS = ("collops", "gloo")
_DESCRIPTION = """
Calls of torch.distributed on a collops group and on gloo's, in turn on the same ranks in one run.
Both groups are in one process. collops's calls run on pinned ranks, gloo's on all cores behind a
barrier that sleeps. collops's time is the median of the rounds, gloo's the 10th percentile.
Steps of training (ddp, fsdp2, fsdp2_windows) are measured on each rank alone as well: what they
take longer with the others is the share that is communication ("comm" in the table).
"""
_COLORS = {"collops": "#4c78a8", "gloo": "#f58518"}
_STYLES = {
    **{"sync": "-", "async": "--", "functional": ":"},
    **{"batch-1": "-", "batch-8": "--"},
}
HEAD = (
    *("call", "way", "bytes", "collops us", "gloo us", "gloo / collops"),
    *("collops comm", "gloo comm", "results"),
)
# The width of the GPT that is trained, its blocks, letters and places (torch/training.py).
GPT = {"width": 192, "blocks": 3, "words": 256, "length": 64}


@dataclass(frozen=True)
class TorchPoint:
    """One of CALLS in one way with tensors of one size."""

    ranks: int
    call: str
    way: str  # of WAYS or SEQUENCES
    size: int  # bytes of each rank's input; 0: a barrier; those of all parameters where it trains

    @property
    def title(self) -> str:
        """The name of the point in notes."""
        return f"{self.call}, {self.way}, {self.size} bytes"

    def describe(self) -> Row:
        """The parameters of the point, for its row."""
        return {"call": self.call, "way": self.way, "bytes": self.size, "ranks": self.ranks}


class TorchCalls(Operator):
    """The calls' options, points and table."""

    name, description, quick = "torch", _DESCRIPTION, "two sizes, few rounds"
    epilog = "calls:\n" + "\n".join(f"  {name:22} {what}" for name, what in CALLS.items()) + "\n"
    iterations, dtypes, plotted = (11, 3), (), "draw the times by size"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--ranks", type=count, default=2, metavar="N", help="ranks of this host (2)")
        add(
            "--calls",
            type=lambda text: words(text, tuple(CALLS)),
            default=tuple(CALLS),
            metavar="LIST",
            help="of those below (all)",
        )
        add(
            "--ways",
            type=lambda text: words(text, WAYS),
            default=WAYS,
            metavar="LIST",
            help=f"of {', '.join(WAYS)} (all); steps of training have their own",
        )
        add(
            "--sizes",
            type=lambda text: counts(text, ","),
            metavar="LIST",
            help=f"bytes of each rank's input ({','.join(map(str, SIZES))})",
        )

    def points(self, options: argparse.Namespace) -> tuple[TorchPoint, ...]:
        sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
        points = points_of(options.ranks, options.calls, options.ways, sizes)
        if not points:
            raise ValueError(f"torch has no functional form of {', '.join(options.calls)}")
        _with_torch()
        return points

    def measure(self, request: Request, store: str) -> Iterator[Row]:
        lines: Iterator[Row] = _with_torch().measure_points(request, store)
        return lines

    def rows(self, record: Row) -> list[Row]:
        return [row_of(record)]

    def text(self, rows: list[Row]) -> str:
        """Nothing: the table is one of all points."""
        return ""

    def summary(self, points: list[list[Row]]) -> str:
        """The table, and why there is no MPI in it."""
        table = markdown_table(HEAD, [cells(row) for rows in points for row in rows])
        why = ": this torch is built without it (torch.distributed.is_mpi_available())"
        if _with_torch().has_mpi():
            why = ", although this torch has it: use collops bench all_gatherv"
        return f"{table}\n\nMPI: not measured{why}"

    def spread(self, row: Row) -> float:
        return float(row["spread"])

    def is_wrong(self, row: Row) -> bool:
        return not row["equal"]

    def save_plot(self, path: Path, points: list[list[Row]]) -> None:
        """A panel for each call, a line for each backend and way."""
        from collops.bench.plot import Panel, save_panels

        every = [row for rows in points for row in rows]
        panels = []
        for call in dict.fromkeys(row["call"] for row in every):
            lines: dict[str, tuple[list[float], list[float]]] = {}
            styles: dict[str, dict[str, Any]] = {}
            for row in (row for row in every if row["call"] == call):
                for backend, color in _COLORS.items():
                    label, style = f"{backend}, {row['way']}", _STYLES[row["way"]]
                    sizes, times = lines.setdefault(label, ([], []))
                    sizes.append(max(row["bytes"], 1))
                    times.append(row[f"{backend}_us"])
                    filled = "full" if style == "-" else "none"
                    styles[label] = {"color": color, "linestyle": style, "fillstyle": filled}
                    styles[label] |= {"marker": "o", "ms": 4}
            of = "bytes of parameters" if call in TRAINING else "bytes of a rank's input"
            panels.append(Panel(call, of, "us", lines, styles=styles))
        save_panels(path, panels)


OPERATOR = TorchCalls()


def _with_torch() -> Any:
    return module_with_torch("collops.bench.torch.measure")


def points_of(
    ranks: int, calls: tuple[str, ...], ways: tuple[str, ...], sizes: tuple[int, ...]
) -> tuple[TorchPoint, ...]:
    """Every call in every way that torch has for it, with every size."""
    return tuple(
        TorchPoint(ranks, call, way, size)
        for call in calls
        for size in _sizes_of(call, sizes)
        for way in _ways_of(call, ways)
        if way != "functional" or call in FUNCTIONAL
    )


def _ways_of(call: str, ways: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(SEQUENCES) if call in TRAINING else ways


def _sizes_of(call: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    if call in TRAINING:
        return (gpt_bytes(),)
    return (0,) if call == "barrier" else sizes


def gpt_bytes() -> int:
    """Bytes of the GPT's parameters, and so of the gradients that a step exchanges."""
    width = GPT["width"]
    each_block = 12 * width**2 + 13 * width
    ends = (2 * GPT["words"] + GPT["length"]) * width + GPT["words"]
    return 4 * (GPT["blocks"] * each_block + ends)


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
    kept = {
        name: value
        for name, value in record.items()
        if not name.endswith("_s") and name != "record"
    }
    own, gloo = record["collops_s"], record["gloo_s"]
    row = {
        **kept,
        "collops_us": round(statistics.median(own) * 1e6, 2),
        "gloo_us": round(tenth(gloo) * 1e6, 2),
        "gloo_median_us": round(statistics.median(gloo) * 1e6, 2),
    }
    row["ratio"] = round(row["gloo_us"] / row["collops_us"], 3)
    row["spread"] = round(float(np.percentile(own, 95)) / min(own), 3)
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
