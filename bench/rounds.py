"""Runs the programs in turn, round by round, and ends every process that they have started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers import ROOT, Peer

_LIMIT_S = 600
_PATIENCE_S = 5.0
_LAST_LINES = 5
_LOOK_S = 1.0  # rarely, because a look takes time from the ranks
Record = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """What every peer is measured with: one launch for all sizes.

    Attributes:
        operator: the operator and the element type, "reduce_scatter_v:bf16".
        shares: of the ranks, "3:5".
        sizes: in bytes, "64,1k".
        iterations: of a size; 0: as many as suit it.
    """

    operator: str
    shares: str
    sizes: str
    iterations: int

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.shares.count(":") + 1

    @property
    def name(self) -> str:
        """As notes print it."""
        return f"{self.operator} {self.shares}"

    def arguments(self) -> list[str]:
        """The program's arguments; all its ways."""
        operator, _, dtype = self.operator.partition(":")
        return [operator, dtype or "f32", self.sizes, self.shares, str(self.iterations), "all"]


def turns(rounds: int, cases: list[Measured], peers: list[Peer]) -> Iterator[tuple[int, Any, Peer]]:
    """Every launch of a run, in its order.

    In each round all peers measure a case before the next case begins, so they see the machine in
    the same minutes; who begins changes from case to case and from round to round.
    """
    for number in range(rounds):
        for position, case in enumerate(cases):
            first = (number + position) % len(peers)
            for peer in [*peers[first:], *peers[:first]]:
                yield number + 1, case, peer


def launch(
    peer: Peer,
    case: Measured,
    limit_s: float = _LIMIT_S,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[list[Record], Record]:
    """One launch: the lines of its points, and what went wrong, which is empty if nothing did.

    Args:
        peer: the library.
        case: what it measures.
        limit_s: after so many seconds the launch is ended.
        stopped: whether the launch shall be ended now; asked again and again.
    """
    process = subprocess.Popen(
        peer.command(case.ranks, case.arguments()),
        env=peer.environment(case.ranks),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + limit_s
    status: int | str | None = None
    while status is None:
        try:
            output, _ = process.communicate(timeout=min(_LOOK_S, limit_s))
            status = process.returncode
        except subprocess.TimeoutExpired:
            if not stopped() and time.monotonic() < deadline:
                continue
            status = f"ended after {limit_s:g} s"
            end_all(process)
            output = _rest_of_output(process)
    lines = output.splitlines()
    points = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    if status == 0:
        return points, {}
    said = [line for line in lines if line.strip() and not line.startswith("{")]
    return points, {"status": status, "output": [_without_paths(x) for x in said[-_LAST_LINES:]]}


def _rest_of_output(process: subprocess.Popen[str]) -> str:
    """What the ended processes had printed; nothing if one of them still holds the pipe."""
    try:
        return process.communicate(timeout=_PATIENCE_S)[0]
    except subprocess.TimeoutExpired:
        return ""


def end_all(process: subprocess.Popen[str]) -> None:
    """Ends a launcher and its processes, by their ids: first politely, so that it can clean up."""
    pids = [process.pid, *descendants(process.pid)]
    process.terminate()
    deadline = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    # Ranks that its end has orphaned are still known from before.
    for pid in {*pids, *descendants(process.pid)} - {process.pid}:
        _kill(pid)
    if process.poll() is None:
        process.kill()


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, directly or not."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        own = children.get(waiting.pop(), [])
        found += own
        waiting += own
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _without_paths(line: str) -> str:
    return line.replace(str(ROOT), ".").replace(str(Path.home()), "~")
