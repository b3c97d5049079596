"""Starts processes that run ranks, reads their reports, waits for them and ends them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import signal
import threading
import time
import warnings
from multiprocessing import connection, get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collops.launch.interrupts import interrupts_deferred
from collops.launch.mail import Inbox

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_JOIN_S = 3.0  # for the end of a process whose pipe has ended
_LOOK_S = 0.2
_OPENMP = re.compile(r"/.*/lib[gi]?omp5?[-.][^/\n]*$", re.MULTILINE)
_OMP_PAUSE_SOFT = 1
# Held while a process is started: another process forked at the same time would have a copy of the
# first one's pipe, so that the end of the pipe would never be seen.
_starting = threading.Lock()


def _renew_lock() -> None:
    # A rank is forked while its parent holds the lock, and may start ranks of its own.
    global _starting
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def new_job_id(starter: str) -> str:
    """A new COLLOPS_JOB_ID, so that ranks of two runs never connect."""
    return f"{starter}-{secrets.token_hex(16)}"


class RankProcess:
    """A process that runs ranks, and the pipe over which it sends reports, one at a time.

    The process that started it owns it and ends it with end_all(). `report` is the report that has
    come; `lost` says how the process ended without one, and `problem` why one could not be read.
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
        """Whether neither a report on the last request nor the end of the process has come."""
        return self.report is None and not self.lost and self.problem is None

    def ask(self, content: object) -> None:
        """Sends the process a request, on which it will send a report."""
        self._forget()
        try:
            self.end.send(content)
        except OSError:
            return  # the process has ended, as listen() will find

    def listen(self) -> None:
        """Reads the part of the report that has come, or notes that the process has ended."""
        alive = self.process.is_alive()  # before reading: a report sent before the end is not lost
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
        """Ends the process with SIGKILL."""
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
        processes: the processes of the same group that were started before.
        ranks: the ranks that it runs.
        main: its work; it sends reports and reads requests on `end`, a Connection.
        args: further arguments of main.
        start_method: multiprocessing's start method.
        daemon: whether it ends with this process.
        apart: whether it closes its copies of the group's pipes, so that it notices the end of this
            process; only with "fork".
    """
    context: Any = get_context(start_method)
    with _starting, interrupts_deferred():
        end, far = context.Pipe()
        ends = [*(other.end for other in processes), end] if apart else []
        process = context.Process(
            target=_main, args=(far, ends, main, args), name=f"rank {ranks[0]}", daemon=daemon
        )
        if start_method == "fork" and not processes:
            _end_openmp_threads()
        try:
            with warnings.catch_warnings():
                # Python warns of fork() in a process with threads, but only fork() can run
                # functions that do not pickle.
                warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
                process.start()
        except BaseException:
            end.close()
            raise
        finally:
            far.close()
        processes.append(RankProcess(ranks, process, end))


def _end_openmp_threads() -> None:
    """Ends this thread's OpenMP threads; its next OpenMP region starts them again.

    torch and other libraries leave them asleep. A forked child has none of them, but its copy of
    the OpenMP runtime would wait for them, for ever.
    """
    with contextlib.suppress(OSError):
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
        for name in sorted(set(_OPENMP.findall(maps))):
            library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            pause = getattr(library, "omp_pause_resource_all", None)  # new in OpenMP 5
            if pause is not None:
                pause(_OMP_PAUSE_SOFT)


def watch(
    processes: Sequence[RankProcess],
    timeout_s: float,
    grace_s: float = 0.0,
    failed: Callable[[RankProcess], bool] = lambda process: False,
) -> tuple[list[RankProcess], int | None]:
    """Waits for the reports; once a process has `failed`, at most `grace_s` longer.

    Returns:
        The processes without a report when the time is up, and the rank that failed first, or None.
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
    """Waits for processes that are ending; afterwards no process, zombie or pipe is left."""
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
    """How a process ended, in words; most real-time signals have no name, only a number."""
    if code is None or code >= 0:
        return "still running" if code is None else f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
