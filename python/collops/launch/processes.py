"""Processes that run ranks: they are started, heard, waited for and ended here."""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
import warnings
from multiprocessing import connection, get_context
from typing import TYPE_CHECKING, Any

from collops.launch.interrupts import interrupts_deferred
from collops.launch.mail import Inbox

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_JOIN_S = 3.0  # for a process whose pipe has ended to end, too
_LOOK_S = 0.2
# While one process is started, no other one may be forked: it would keep a copy of the first one's
# pipe, whose end would never be seen. Nor may one be forgotten: start() looks at them all.
_starting = threading.Lock()


def _renew_lock() -> None:
    # A rank was forked while its parent held the lock, and may start ranks of its own.
    global _starting
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def new_job_id(starter: str) -> str:
    """A COLLOPS_JOB_ID by which the ranks of one start never meet those of another."""
    return f"{starter}-{secrets.token_hex(16)}"


class RankProcess:
    """A process that runs ranks, and the pipe on which it posts its reports, one at a time.

    Its starter owns it, and ends it with end_all(). A report that has come is in `report`; `lost`
    says how the process ended without one, and `problem` why one could not be read.
    """

    def __init__(self, ranks: Sequence[int], process: Any, end: Any) -> None:
        self.ranks = ranks
        self.process = process
        self.end = end
        self._inbox = Inbox(end.fileno())
        self._forget()

    def _forget(self) -> None:
        self.report: Any = None
        self.lost = ""
        self.problem: Exception | None = None

    @property
    def silent(self) -> bool:
        """Whether nothing is known yet of what was asked last."""
        return self.report is None and not self.lost and self.problem is None

    def ask(self, content: object) -> None:
        """Sends the process something to do, for which it posts another report."""
        self._forget()
        try:
            self.end.send(content)
        except OSError:
            return  # it has ended, which listen() will say

    def listen(self) -> None:
        """Takes what has come of the report, or the news that there will be none."""
        alive = self.process.is_alive()  # asked first: a report sent before the end is not lost
        try:
            if self.end.poll():
                self.report = self._inbox.read()
                return
        except (EOFError, OSError):
            self.process.join(_JOIN_S)
            alive = False
        except Exception as problem:
            self.problem = problem
            return
        if not alive:
            self.lost = _ending(self.process.exitcode)

    def kill(self) -> None:
        """Ends the process, which has no say in it."""
        self.process.kill()
        self.process.join()


def start(
    processes: list[RankProcess],
    ranks: Sequence[int],
    main: Callable[..., None],
    args: tuple[Any, ...],
    *,
    start_method: str = "fork",
    daemon: bool = False,
    apart: bool = False,
) -> None:
    """Adds a process that calls ``main(end, *args)``; Ctrl-C waits until it is in the list.

    Args:
        processes: those of the same group that were started before.
        ranks: which ranks it runs.
        main: its work; it posts reports on `end`, a Connection, and may be asked for more on it.
        args: passed on.
        start_method: as multiprocessing has it.
        daemon: whether it ends with this process.
        apart: whether it closes its copies of the group's pipes, so that it notices the end of this
            process; with "fork" alone.
    """
    context: Any = get_context(start_method)
    with _starting, interrupts_deferred():
        end, far = context.Pipe()
        ends = [*(other.end for other in processes), end] if apart else []
        process = context.Process(
            target=_main, args=(far, ends, main, args), name=f"rank {ranks[0]}", daemon=daemon
        )
        try:
            with warnings.catch_warnings():
                # Python warns of fork() beside threads. The ranks are this process's own business,
                # and only fork() can run functions that do not pickle.
                warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
                process.start()
        except BaseException:
            end.close()
            raise
        finally:
            far.close()
        processes.append(RankProcess(ranks, process, end))


def watch(
    processes: Sequence[RankProcess],
    timeout_s: float,
    grace_s: float = 0.0,
    failed: Callable[[RankProcess], bool] = lambda process: False,
) -> tuple[list[RankProcess], int | None]:
    """Waits for the reports; once a process has `failed`, for `grace_s` more at most.

    Returns:
        Those that are silent when their time is up, and the rank that cut it short, None if none.
    """
    deadline, first = time.monotonic() + timeout_s, None
    while silent := [process for process in processes if process.silent]:
        handles: list[Any] = [process.end for process in silent]
        handles += [process.process.sentinel for process in silent]
        ready = connection.wait(handles, max(0.0, min(_LOOK_S, deadline - time.monotonic())))
        for process in silent:
            if not ready or process.end in ready or process.process.sentinel in ready:
                process.listen()
        lost = next((process.ranks[0] for process in processes if failed(process)), None)
        if lost is not None and time.monotonic() + grace_s < deadline:
            deadline, first = time.monotonic() + grace_s, lost
        if time.monotonic() >= deadline:
            break
    return [process for process in processes if process.silent], first


def end_all(processes: Sequence[RankProcess], patience_s: float) -> None:
    """Waits for processes that are about to end, and leaves no process, zombie or pipe behind."""
    deadline = time.monotonic() + patience_s
    for process in processes:
        process.end.close()
    for process in processes:
        process.process.join(max(0.0, deadline - time.monotonic()))
        if process.process.is_alive():
            process.kill()
        process.process.join()
    with _starting:
        for process in processes:
            process.process.close()


def _main(end: Any, ends: Sequence[Any], main: Callable[..., None], args: tuple[Any, ...]) -> None:
    for other in ends:
        other.close()
    main(end, *args)


def _ending(code: int | None) -> str:
    """How a process ended; real-time signals but the first and the last have a number only."""
    if code is None or code >= 0:
        return "still running" if code is None else f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
