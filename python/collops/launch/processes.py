"""Ranks that are processes or threads: they are started, watched, asked for reports and ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import queue
import re
import secrets
import signal
import struct
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any

_HEAD = struct.Struct("!Q")
_MOST = 1 << 16
_JOIN_S = 3.0  # for the end of a process whose pipe has ended
_LOOK_S = 0.2
# The longest wait of one Queue.get(), whose time-out is at most 63 bits of nanoseconds.
_LONGEST_GET_S = 60.0
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


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defers Ctrl-C to the end of the block, in the main thread; others never get one."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is None:  # None: a handler of C code
        yield
        return
    noted: list[tuple[Any, ...]] = []
    handler = signal.signal(signal.SIGINT, lambda *args: noted.append(args))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if noted and callable(handler):
            handler(*noted[0])


@contextlib.contextmanager
def exit_codes_known() -> Iterator[None]:
    """Lets this process learn how its children end, if it ignores SIGCHLD; in the main thread."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGCHLD) is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def new_job_id(starter: str) -> str:
    """A new COLLOPS_JOB_ID, so that ranks of two runs never connect."""
    return f"{starter}-{secrets.token_hex(16)}"


def post(descriptor: int, content: object) -> None:
    """Sends a report over a pipe; waits until the reader has taken the bytes.

    Raises:
        OSError: the reader has closed the pipe.
    """
    write_all(descriptor, packed(content))


def packed(content: object) -> bytes:
    """One object as the bytes that post() writes."""
    data = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(len(data)) + data


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all the bytes."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


class Inbox:
    """The bytes of an object that have arrived so far."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._data = bytearray()

    def read(self) -> Any:
        """Reads the bytes that are there; returns the object once it is complete, else None.

        Blocks only if the descriptor is not readable.

        Raises:
            EOFError: the other end was closed.
            OSError: it cannot be read.
        """
        piece = os.read(self._descriptor, _MOST)
        if not piece:
            raise EOFError
        self._data += piece
        if len(self._data) < _HEAD.size:
            return None
        [length] = _HEAD.unpack_from(self._data)
        if len(self._data) < _HEAD.size + length:
            return None
        content = pickle.loads(memoryview(self._data)[_HEAD.size :])
        self._data = bytearray()
        return content


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
    """How a process ended, in words."""
    if code is None:
        return "still running"
    return f"exit code {code}" if code >= 0 else f"killed by {signal_name(-code)}"


def signal_name(number: int) -> str:
    """A signal's name; most real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def run_on_threads(
    ranks: Sequence[int],
    work: Callable[[int], Any],
    timeout_s: float,
    grace_s: float = 0.0,
    failed: Callable[[Any], bool] = lambda report: False,
) -> tuple[dict[int, Any], dict[int, threading.Thread]]:
    """Calls ``work(rank)`` in a thread of each rank; once one has `failed`, waits `grace_s` more.

    Returns:
        The result of each rank, None if it raised; and the threads that still run: they cannot be
        ended, but end with the process.
    """
    done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()

    def run(rank: int) -> None:
        report = None
        try:
            report = work(rank)
        finally:
            done.put((rank, report))

    threads = {
        rank: threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True)
        for rank in ranks
    }
    for thread in threads.values():
        thread.start()
    reports: dict[int, Any] = {}
    deadline = time.monotonic() + timeout_s
    while threads and time.monotonic() < deadline:
        try:
            left_s = max(0.0, min(_LONGEST_GET_S, deadline - time.monotonic()))
            rank, report = done.get(timeout=left_s)
        except queue.Empty:
            continue
        reports[rank] = report
        del threads[rank]
        if failed(report):
            deadline = min(deadline, time.monotonic() + grace_s)
    return reports, threads
