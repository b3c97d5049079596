"""Draws a merged trace: a row for every rank, a bar for every call, its waits in another colour."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collops.trace.merge import first_call_us, group_calls, rank_of, without_first_contact

if TYPE_CHECKING:
    from collops.trace.merge import Event, MergedTrace

_WAIT, _MOVE, _LATE = "#f2cf9c", "#4c78a8", "#c0392b"
_HIGH = 0.6  # of a row
# Of the width: a shorter call has no room for its name, and a rank is not late by less.
_LEAST_NAMED, _LEAST_LATE = 0.09, 0.01


def save_timeline(
    trace: MergedTrace, path: Path, range_s: tuple[float, float] = (0.0, math.inf)
) -> None:
    """Writes a picture of the calls, without first contact, or of those in a range.

    The range is in seconds, and the times of the picture in ms, since the first call.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    trace = replace(trace, events=list(shown_parts(trace, *(at * 1e6 for at in range_s))))
    figure = Figure(figsize=(11, 1.2 + 0.5 * len(trace.ranks)))
    panel = figure.subplots()
    rows = {rank: row for row, rank in enumerate(trace.ranks)}
    for kind, color in (("move", _MOVE), ("wait", _WAIT)):
        for rank, row in rows.items():
            panel.broken_barh(
                [
                    (event["ts"] / 1e3, event["dur"] / 1e3)
                    for event in trace.events
                    if event["cat"] == kind and rank_of(event) == rank and _is_shown(event)
                ],
                (row - _HIGH / 2, _HIGH),
                facecolors=color,
            )
    _name_calls(panel, trace, rows)
    _mark_late(panel, trace, rows)
    panel.set_yticks(list(rows.values()), [f"rank {rank}" for rank in rows])
    panel.invert_yaxis()
    panel.set_xlabel("ms since the first call")
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    kinds = {"moves and computes": _MOVE, "waits": _WAIT, "the last rank to enter": _LATE}
    handles = [Patch(color=color) for color in kinds.values()]
    figure.legend(handles, kinds, loc="upper center", ncols=len(kinds), frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.35 / figure.get_figheight()))
    figure.savefig(path, dpi=110)


def shown_parts(trace: MergedTrace, begin_us: float, end_us: float) -> Iterator[Event]:
    """The parts of slices that a picture of that range has; times are since the first call."""
    first = first_call_us(trace)
    for event in without_first_contact(trace).events:
        begin = max(event["ts"] - first, begin_us)
        end = min(event["ts"] - first + event["dur"], end_us)
        if begin < end:
            yield {**event, "ts": begin, "dur": end - begin}


def _is_shown(event: Event) -> bool:
    # A wait for a started call holds the slices of that call.
    return "started call" not in event["name"]


def _length(trace: MergedTrace) -> float:
    begin = min((event["ts"] for event in trace.events), default=0.0)
    return max((event["ts"] + event["dur"] - begin for event in trace.events), default=1.0)


def _name_calls(panel: Any, trace: MergedTrace, rows: dict[int, int]) -> None:
    """Frames every call, and names those that have room for it."""
    calls = [e for e in trace.events if e["cat"] == "call" and e["name"] != "wait"]
    for event in calls:
        begin, length = event["ts"] / 1e3, event["dur"] / 1e3
        row = rows[rank_of(event)]
        panel.broken_barh(
            [(begin, length)],
            (row - _HIGH / 2, _HIGH),
            facecolors="none",
            edgecolors="black",
            linewidth=0.6,
        )
        if event["dur"] > _LEAST_NAMED * _length(trace):
            where = (begin + length / 2, row)
            panel.annotate(event["name"], where, ha="center", va="center", fontsize=8)


def _mark_late(panel: Any, trace: MergedTrace, rows: dict[int, int]) -> None:
    """A red line where the last rank enters a call, up to the rank that has waited longest."""
    for call in group_calls(trace.events):
        if call.late_us < _LEAST_LATE * _length(trace):
            continue
        first = min(call.entered, key=lambda rank: call.entered[rank])
        ends = sorted((rows[first], rows[call.last]))
        at = call.entered[call.last] / 1e3
        panel.vlines(at, ends[0] - _HIGH / 2, ends[1] + _HIGH / 2, colors=_LATE, linewidth=1.2)
