"""Late ranks: the calls that waited longest for their last rank, and every rank's share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collops.terminal.tables import aligned
from collops.trace.merge import group_calls, missing_ranks, rank_of

if TYPE_CHECKING:
    from collops.trace.merge import GroupCall, MergedTrace


@dataclass
class RankShare:
    """What one rank did in the calls of a trace; times are in us.

    Attributes:
        rank: the rank of the job.
        calls: the calls that it made.
        in_calls_us: the time that it spent in them.
        in_waits_us: how much of that it waited.
        times_last: how often it entered a call of all ranks last.
        others_waited_us: how long the other ranks waited in those calls, added up.
    """

    rank: int
    calls: int = 0
    in_calls_us: float = 0.0
    in_waits_us: float = 0.0
    times_last: int = 0
    others_waited_us: float = 0.0


def latest(trace: MergedTrace, most: int) -> list[GroupCall]:
    """The calls whose last rank entered latest after the first rank, the latest first."""
    calls = group_calls(trace.events)
    return sorted(calls, key=lambda call: call.late_us, reverse=True)[:most]


def shares(trace: MergedTrace) -> list[RankShare]:
    """The share of every rank, in the order of the ranks."""
    found = {rank: RankShare(rank) for rank in trace.ranks}
    rows: dict[tuple[int, int], float] = defaultdict(float)  # when the last call of a row ended
    for event in trace.events:
        share = found[rank_of(event)]
        if event["cat"] == "call":
            # The time of a call inside the wait for it is counted once.
            row = (event["pid"], event["tid"])
            end = event["ts"] + event["dur"]
            share.calls += "seq" in event["args"]
            share.in_calls_us += max(end - max(event["ts"], rows[row]), 0.0)
            rows[row] = max(rows[row], end)
    for rank, waited in _waits(trace).items():
        found[rank].in_waits_us = waited
    for call in group_calls(trace.events):
        found[call.last].times_last += 1
        found[call.last].others_waited_us += call.waited_us
    return list(found.values())


def _waits(trace: MergedTrace) -> dict[int, float]:
    """How long each rank waited; a wait that holds a call of its own is not counted."""
    waits: dict[int, float] = defaultdict(float)
    for event in trace.events:
        if event["cat"] == "wait" and "started call" not in event["name"]:
            waits[rank_of(event)] += event["dur"]
    return waits


def summary(trace: MergedTrace, most: int = 10) -> str:
    """The text that ``collops trace summary`` prints."""
    calls = group_calls(trace.events)
    # A merged trace may be a part of its run.
    begin = min((event["ts"] for event in trace.events), default=0.0)
    length = max((event["ts"] + event["dur"] - begin for event in trace.events), default=0.0)
    hosts = ", ".join(clock.host for clock in trace.clocks)
    ranks = f"{len(trace.ranks)} ranks on {hosts}"
    head = f"{ranks}: {len(calls)} calls of several ranks in {length / 1e6:.3f} s"
    missing = missing_ranks(trace.ranks, trace.events)
    parts = [
        head,
        *([missing] if missing else []),
        *(clock.describe() for clock in trace.clocks[1:]),
    ]
    if calls:
        parts += ["", "Calls with the latest last rank:", *_latest(latest(trace, most))]
    parts += ["", "Ranks:", *_shares(shares(trace))]
    unfinished = [event for event in trace.events if event["args"].get("unfinished")]
    if unfinished:
        parts += ["", "Calls that had not ended at the end of the trace:"]
        rows = [["operator", "domain", "call", "rank", "since s"]]
        rows += [
            [
                *(event["name"], event["args"]["comm"], _number(event["args"])),
                *(str(rank_of(event)), f"{event['ts'] / 1e6:.3f}"),
            ]
            for event in unfinished
        ]
        parts += aligned(rows, "<>", "  ")
    return "\n".join(parts)


def _number(args: dict[str, object]) -> str:
    """A call's number in messages, or else among the group's calls."""
    return str(args.get("call") or args.get("seq") or "-")


def _latest(calls: Sequence[GroupCall]) -> list[str]:
    rows = [["operator", "domain", "call", "last rank", "later than the first", "total wait"]]
    rows += [
        [
            *(call.name, call.comm, str(call.number or call.seq), str(call.last)),
            *(_ms(call.late_us), _ms(call.waited_us)),
        ]
        for call in calls
    ]
    return aligned(rows, "<>", "  ")


def _shares(found: Sequence[RankShare]) -> list[str]:
    rows = [
        ["rank", "calls", "time in calls", "of that waits", "times last", "others waited for it"]
    ]
    rows += [
        [
            *(str(share.rank), str(share.calls), _ms(share.in_calls_us), _ms(share.in_waits_us)),
            *(str(share.times_last), _ms(share.others_waited_us)),
        ]
        for share in found
    ]
    return aligned(rows, "<>", "  ")


def _ms(us: float) -> str:
    return f"{us / 1e3:.3f} ms"
