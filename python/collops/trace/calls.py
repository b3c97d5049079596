"""The calls that all ranks of a group make, each with the times at which its ranks entered it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from collops.trace.rank_file import Event


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
