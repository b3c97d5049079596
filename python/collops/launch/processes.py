"""The parent's view of the ranks: waiting for their reports and ending their processes."""

from __future__ import annotations

import pickle
import signal
import time
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

from collops.launch.child import Ended
from collops.testing.errors import RankDiedError, RankEndedError, RankErrors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.process import BaseProcess

GRACE_S = 5.0  # for ranks to end by themselves once one has failed
TERMINATE_S = 2.0  # for them to end once asked
_LOOK_S = 0.2


@dataclass
class Rank:
    """One process of a run and what is known of it."""

    rank: int
    process: BaseProcess
    receiving: connection.Connection
    done: bool = False
    result: Any = None
    error: BaseException | None = None
    where: str = field(default="", repr=False)

    def read(self) -> None:
        """Takes the report if there is one, or the news that there will be none."""
        alive = self.process.is_alive()  # asked first: a report sent before the end is not lost
        try:
            if not self.receiving.poll():
                if not alive:
                    self._died()
                return
            self.result, self.error, self.where = pickle.loads(self.receiving.recv_bytes())
            self.done = True
        except (EOFError, OSError):
            self.process.join(TERMINATE_S)
            self._died()
        except Exception as problem:
            self.error = RuntimeError(f"the report of rank {self.rank} cannot be read: {problem}")
            self.done = True

    def _died(self) -> None:
        self.done = True
        code = self.process.exitcode
        if code is not None and code < 0:
            how = f"killed by {signal.Signals(-code).name}"
        else:
            how = f"exit code {code}"
        self.error = RankDiedError(f"rank {self.rank} ended without a result: {how}")


def collect(ranks: Sequence[Rank], timeout: float) -> list[Any]:
    """Waits for every rank and returns the results, or raises RankErrors."""
    deadline = time.monotonic() + timeout
    why = f"it was still running after {timeout:g} s"
    while waiting := [rank for rank in ranks if not rank.done]:
        _wait(waiting, deadline)
        failed = [rank for rank in ranks if rank.error is not None]
        if failed and time.monotonic() + GRACE_S < deadline:
            deadline = time.monotonic() + GRACE_S
            why = f"it was still running {GRACE_S:g} s after rank {failed[0].rank} had failed"
        if time.monotonic() >= deadline:
            _end_waiting([rank for rank in ranks if not rank.done], why)
    failed = [rank for rank in ranks if rank.error is not None]
    if failed:
        raise RankErrors(
            {rank.rank: rank.error for rank in failed if rank.error is not None},
            {rank.rank: rank.where for rank in failed},
        )
    return [rank.result for rank in ranks]


def _wait(waiting: Sequence[Rank], deadline: float) -> None:
    handles: list[Any] = [rank.receiving for rank in waiting]
    handles += [rank.process.sentinel for rank in waiting]
    connection.wait(handles, max(0.0, min(_LOOK_S, deadline - time.monotonic())))
    for rank in waiting:
        rank.read()


def _end_waiting(waiting: Sequence[Rank], why: str) -> None:
    """Asks, then kills; a rank that was asked reports where it was."""
    for rank in waiting:
        rank.process.terminate()
    deadline = time.monotonic() + TERMINATE_S
    while time.monotonic() < deadline and not all(rank.done for rank in waiting):
        _wait([rank for rank in waiting if not rank.done], deadline)
    for rank in waiting:
        if not rank.done:
            rank.process.kill()
            rank.process.join()
            rank.done, rank.error = True, Ended()
        if isinstance(rank.error, (Ended, RankDiedError)):
            rank.error = RankEndedError(f"rank {rank.rank} was ended: {why}")


def end_all(ranks: Sequence[Rank]) -> None:
    """Leaves no process, no zombie and no pipe behind."""
    for rank in ranks:
        rank.receiving.close()
        if not rank.done:
            rank.process.terminate()
    deadline = time.monotonic() + TERMINATE_S
    for rank in ranks:
        rank.process.join(max(0.0, deadline - time.monotonic()))
        if rank.process.is_alive():
            rank.process.kill()
            rank.process.join()


def forget_all(ranks: Sequence[Rank]) -> None:
    """Gives back what multiprocessing keeps of processes that have ended."""
    for rank in ranks:
        rank.process.close()
