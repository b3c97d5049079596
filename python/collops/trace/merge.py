"""Joins the traces of several ranks by a common clock."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collops.errors import ErrorCode, raise_status
from collops.trace.calls import group_calls, is_group_call, rank_of
from collops.trace.clocks import HostClock, host_clocks
from collops.trace.rank_file import RankFile, read_rank_file

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from collops.trace.rank_file import Event


@dataclass(frozen=True)
class MergedTrace:
    """The events of all ranks; times are in us since the first one.

    Attributes:
        ranks: the ranks, in their order.
        clocks: how each host's times were joined.
        metadata: names of processes and threads.
        events: slices, ordered by their begin.
    """

    ranks: list[int]
    clocks: list[HostClock]
    metadata: list[Event]
    events: list[Event]

    def as_json(self) -> dict[str, Any]:
        """Chrome's JSON format."""
        clocks = [vars(clock) for clock in self.clocks]
        return {
            "traceEvents": self.metadata + self.events,
            "displayTimeUnit": "ns",
            "otherData": {"collops": {"ranks": self.ranks, "clocks": clocks}},
        }


def merge(paths: Sequence[str | os.PathLike[str]]) -> MergedTrace:
    """Joins the files that the ranks of one run have written.

    Raises:
        ArgumentError: a file cannot be read, or two are of the same rank.
    """
    files = sorted((read_rank_file(path) for path in paths), key=lambda file: file.rank)
    for one, other in pairwise(files):
        if one.rank == other.rank:
            why = f"{one.path} and {other.path} are both of rank {one.rank}: pass files of one run"
            raise_status(ErrorCode.ERROR_INVALID_PARAM, why)
    clocks = host_clocks(files)
    for file in files:
        _shift(file.events, clocks[file.boot].shift_us)
    events = [event for file in files for event in _slices(file, _end_of(files))]
    _shift(events, -min((event["ts"] for event in events), default=0.0))
    _say_who_is_late(events)
    # A slice comes before the slices inside it.
    events.sort(key=lambda event: (event["ts"], -event["dur"]))
    metadata = [event for file in files for event in file.metadata]
    return MergedTrace([file.rank for file in files], list(clocks.values()), metadata, events)


def read_merged(path: str | os.PathLike[str]) -> MergedTrace | None:
    """Reads what ``collops trace merge`` has written; None if the file is no such trace."""
    try:
        read = json.loads(Path(path).read_text(encoding="utf-8"))
        said = read["otherData"]["collops"]
        metadata = [event for event in read["traceEvents"] if event["ph"] == "M"]
        events = [event for event in read["traceEvents"] if event["ph"] == "X"]
        clocks = [HostClock(**clock) for clock in said["clocks"]]
        return MergedTrace(list(said["ranks"]), clocks, metadata, events)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _shift(events: list[Event], by_us: float) -> None:
    for event in events:
        event["ts"] = round(event["ts"] + by_us, 3)


def _end_of(files: Sequence[RankFile]) -> float:
    """The last moment of which the files tell."""
    return max((e["ts"] + e.get("dur", 0.0) for file in files for e in file.events), default=0.0)


def _slices(file: RankFile, end_us: float) -> list[Event]:
    """The slices of a rank; a call that a rank did not end lasts until the end of the trace."""
    slices = [event for event in file.events if event["ph"] == "X"]
    # An instant says that a call waits long. If the call has ended, its slice says more.
    ended = [(e["tid"], e["name"], e["ts"] + e["dur"]) for e in slices if e["cat"] != "wait"]
    last: dict[tuple[int, str], float] = {}
    for tid, name, end in ended:
        last[tid, name] = max(end, last.get((tid, name), end))
    for event in file.events:
        key = event["tid"], event["name"]
        if event["ph"] == "X" or last.get(key, -1.0) >= event["ts"]:
            continue
        args = {key: value for key, value in event["args"].items() if key != "ago_us"}
        begin = event["ts"] - event["args"]["ago_us"]
        slices.append(
            {
                **{key: event[key] for key in ("name", "pid", "tid")},
                **{"cat": "call", "ph": "X", "ts": round(begin, 3)},
                **{"dur": round(end_us - begin, 3), "args": {**args, "unfinished": True}},
            }
        )
    return slices


def _say_who_is_late(events: list[Event]) -> None:
    """Adds to every call of all ranks how much later than the first rank this one entered it."""
    first = {(c.comm, c.seq): min(c.entered.values()) for c in group_calls(events)}
    late = {(c.comm, c.seq): c.last for c in group_calls(events)}
    for event in filter(is_group_call, events):
        key = (event["args"]["comm"], event["args"]["seq"])
        if key in first:
            event["args"]["late_us"] = round(event["ts"] - first[key], 3)
            event["args"]["is_last"] = late[key] == rank_of(event)
