"""Reads the traces of ranks as the core writes them, and joins them by a common clock."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from collops.errors import ErrorCode, raise_status

# One line of a trace in Chrome's format: name, cat, ph, pid, tid, ts and dur in us, args.
Event = dict[str, Any]


@dataclass
class RankFile:
    """What one rank has recorded.

    Attributes:
        path: the file.
        rank: the rank, whose events have the pid rank + 1.
        host: the host's name.
        boot: names the host's monotonic clock, which the times of the events are of.
        clocks: pairs of monotonic and real time, in ns.
        metadata: names of processes and threads.
        events: slices and instants, in the order in which they ended.
    """

    path: Path
    rank: int = -1
    host: str = ""
    boot: str = ""
    clocks: list[tuple[int, int]] = field(default_factory=list)
    metadata: list[Event] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


def read_rank_file(path: str | os.PathLike[str]) -> RankFile:
    """Reads the trace of one rank; of a rank that was killed, all but the line that it was writing.

    Raises:
        ArgumentError: it cannot be read, or the core has not written it.
    """
    found = RankFile(Path(path))
    try:
        lines = found.path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        _refuse(f"{path}: {error.strerror}")
    for number, line in enumerate(lines, 1):
        if line in ("[", "]", ""):
            continue
        try:
            event = json.loads(line.removesuffix(","))
        except ValueError:
            if number == len(lines):
                break
            _refuse(f"{path}:{number}: not an event of a collops trace")
        _take(found, event)
    if found.rank < 0:
        _refuse(f"{path}: not a collops trace of a rank")
    return found


def _take(found: RankFile, event: Any) -> None:
    if isinstance(event, dict) and "traceEvents" in event:
        _refuse(f"{found.path}: is a merged trace: pass it alone, or the files of the ranks")
    if not isinstance(event, dict) or not {"name", "ph", "pid"} <= event.keys():
        _refuse(f"{found.path}: not a collops trace of a rank")
    if event["name"] == "collops_clocks":
        clocks = event["args"]["clocks"]
        found.rank, found.host, found.boot = clocks["rank"], clocks["host"], clocks["boot"]
        found.clocks.append((clocks["monotonic_ns"], clocks["realtime_ns"]))
    elif event["ph"] == "M":
        found.metadata.append(event)
    else:
        found.events.append(event)


def _refuse(why: str) -> None:
    raise_status(ErrorCode.ERROR_INVALID_PARAM, why)


@dataclass
class GroupCall:
    """One call of all ranks of a communicator. Ranks are those of the job; times are in us.

    Attributes:
        comm: the communicator's name.
        seq: its number among the communicator's calls, equal on all ranks.
        name: the operator.
        backend: the communicator's backend.
        number: the number of the call in messages; 0 if none is known.
        entered: when each rank entered it.
        left: when each rank left it without an error.
    """

    comm: str
    seq: int
    name: str
    backend: str
    number: int
    entered: dict[int, float] = field(default_factory=dict)
    left: dict[int, float] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The rank that entered last."""
        return max(self.entered, key=lambda rank: self.entered[rank])

    @property
    def late_us(self) -> float:
        """How much later the last rank entered than the first."""
        return self.entered[self.last] - min(self.entered.values())

    @property
    def waited_us(self) -> float:
        """The time, over all ranks, from each rank's entry to the last one's."""
        last = self.entered[self.last]
        return sum(last - entered for entered in self.entered.values())


def is_group_call(event: Event) -> bool:
    """Whether an event is a rank's part of a call of all ranks."""
    return event.get("cat") == "call" and event["ph"] == "X" and "seq" in event["args"]


def rank_of(event: Event) -> int:
    """The rank of the job whose event it is."""
    return int(event["pid"]) - 1


def missing_ranks(ranks: Sequence[int], events: Iterable[Event]) -> str:
    """Which ranks have no file, by the number of ranks of the calls; empty if none is known."""
    size = max((event["args"].get("ranks", 0) for event in events), default=0)
    if len(ranks) >= size:
        return ""
    if max(ranks) >= size:  # ranks of a group that is not the job's first
        return f"calls of {size} ranks lack {size - len(ranks)}: pass the files of all ranks"
    missing = [rank for rank in range(size) if rank not in ranks]
    are = "rank {} of {} is missing" if len(missing) == 1 else "ranks {} of {} are missing"
    said = are.format(", ".join(map(str, missing)), size)
    return f"{said}: pass the files of all ranks"


def group_calls(events: Iterable[Event]) -> list[GroupCall]:
    """The calls that at least two ranks have entered, in the order of their first entry."""
    calls: dict[tuple[str, int], GroupCall] = {}
    for event in filter(is_group_call, events):
        args = event["args"]
        key = (args["comm"], args["seq"])
        if key not in calls:
            calls[key] = GroupCall(*key, event["name"], args["backend"], args.get("call", 0))
        call = calls[key]
        call.entered[rank_of(event)] = event["ts"]
        if not {"error", "unfinished"} & args.keys():
            call.left[rank_of(event)] = event["ts"] + event["dur"]
    several = [call for call in calls.values() if len(call.entered) > 1]
    return sorted(several, key=lambda call: min(call.entered.values()))


# Backends whose calls return on a CPU after all ranks have entered them, on several hosts.
_ACROSS_HOSTS = ("ucx",)


@dataclass(frozen=True)
class HostClock:
    """How times of one host are converted to the clock of the first.

    Attributes:
        host: the host's name.
        boot: names its clock.
        shift_us: the offset that is added to its times.
        within_us: largest error of the shift; None: as exact as the hosts' real time.
    """

    host: str
    boot: str
    shift_us: float
    within_us: float | None

    def describe(self) -> str:
        """The line that a merge prints of this host."""
        if self.within_us is None:
            return f"{self.host}: joined by real time, as exact as the hosts keep it"
        return f"{self.host}: joined by its calls, within {self.within_us:.1f} us"


def host_clocks(files: Sequence[RankFile]) -> dict[str, HostClock]:
    """The clock of every host by its `boot`; the first file's host has the reference."""
    first = files[0].boot
    real_us = {
        boot: median(
            (real - monotonic) / 1e3
            for file in files
            if file.boot == boot
            for monotonic, real in file.clocks
        )
        for boot in {file.boot for file in files}
    }
    calls = group_calls(event for file in files for event in file.events)
    hosts = {file.rank: file.boot for file in files}
    clocks = {}
    for file in files:
        if file.boot == first:
            clocks[first] = HostClock(files[0].host, first, 0.0, 0.0)
        elif file.boot not in clocks:
            by_time = real_us[file.boot] - real_us[first]
            low, high = _bounds(calls, hosts, first, file.boot)
            clocks[file.boot] = _joined(file, by_time, low, high)
    return clocks


def _joined(file: RankFile, by_time: float, low: float, high: float) -> HostClock:
    if low == -float("inf") or high == float("inf"):
        return HostClock(file.host, file.boot, by_time, None)
    within = abs(high - low) / 2
    # Clocks that drift apart in a long run may cross the bounds: the middle is closest then.
    shift = min(max(by_time, low), high) if low <= high else (low + high) / 2
    return HostClock(file.host, file.boot, shift, within)


def _bounds(
    calls: Sequence[GroupCall], hosts: dict[int, str], first: str, other: str
) -> tuple[float, float]:
    """The least and the most that can be added to the times of `other`."""
    low, high = -float("inf"), float("inf")
    for call in calls:
        if call.backend not in _ACROSS_HOSTS:
            continue
        here, there = (
            [rank for rank in call.left if hosts.get(rank) == boot] for boot in (first, other)
        )
        if not here or not there:
            continue
        entered_here = max(call.entered[rank] for rank in here)
        entered_there = max(call.entered[rank] for rank in there)
        low = max(low, entered_here - min(call.left[rank] for rank in there))
        high = min(high, min(call.left[rank] for rank in here) - entered_there)
    return low, high


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


def without_first_contact(trace: MergedTrace) -> MergedTrace:
    """The calls of a trace, without the time in which ranks connect; all if no call follows."""
    until: dict[tuple[int, int], float] = {}  # when the first contact of a row has ended
    events = []
    for event in trace.events:  # a slice comes before the slices inside it
        row = (event["pid"], event["tid"])
        if event["name"] == "first contact":
            until[row] = _end(event)
        elif event["ts"] >= until.get(row, 0.0):
            events.append(event)
    return replace(trace, events=events or trace.events)


def first_call_us(trace: MergedTrace) -> float:
    """When the first rank entered the first call."""
    return min((event["ts"] for event in without_first_contact(trace).events), default=0.0)


def between(trace: MergedTrace, begin_s: float, end_s: float) -> MergedTrace:
    """The slices of which a part lies in a range, in seconds since the first call.

    Raises:
        ArgumentError: there are none.
    """
    first = first_call_us(trace)
    begin, end = first + begin_s * 1e6, first + end_s * 1e6
    events = [event for event in trace.events if event["ts"] < end and _end(event) > begin]
    if not events:
        last_s = max((_end(event) - first for event in trace.events), default=0.0) / 1e6
        why = f"no call from {begin_s:g} s to {end_s:g} s: the last one ends at {last_s:g} s"
        raise_status(ErrorCode.ERROR_INVALID_PARAM, why)
    return replace(trace, events=events)


def _end(event: Event) -> float:
    return float(event["ts"] + event["dur"])


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
