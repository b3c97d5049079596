"""The trace of one rank, as the core writes it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collops.errors import ErrorCode, raise_status

if TYPE_CHECKING:
    import os

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
