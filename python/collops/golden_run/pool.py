"""Ranks that are kept alive from case to case: processes, or threads of one process."""

from __future__ import annotations

import os
import secrets
import signal
import time
import warnings
from multiprocessing import connection, get_context
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from collops.golden_run.rank import Report, execute
from collops.launch.mail import Inbox, post

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from multiprocessing.connection import Connection

    from collops.golden_run.calls import Call

    Work = Callable[[Call, int], Report]

# Once a rank has failed, the others soon learn of it, or wait for nothing.
GRACE_S = 3.0
# Between two looks at the clock: a poll takes no more than 31 bits of milliseconds.
_LOOK_S = 60.0


class Pool:
    """The ranks of one number. A call is submitted, then collected; a broken pool takes no more.

    Owns its processes: close() leaves none behind.
    """

    def __init__(
        self,
        rank_size: int,
        environment: Mapping[str, str],
        *,
        threads: bool = False,
        work: Work = execute,
    ) -> None:
        self.rank_size = rank_size
        self.broken = False
        self._stage = ""
        self._hosts: list[_Host] = []
        own = {**environment, "COLLOPS_JOB_ID": f"golden-{secrets.token_hex(16)}"}
        groups = [list(range(rank_size))] if threads else [[rank] for rank in range(rank_size)]
        for ranks in groups:
            self._hosts.append(_Host(ranks, own, work, [host.end for host in self._hosts]))

    def submit(self, call: Call) -> None:
        """Gives every rank the call; returns at once."""
        self._stage = call.expected.stage
        for host in self._hosts:
            host.submit(call)

    def collect(self, timeout: float) -> list[Report]:
        """Returns every rank's report; those that died or hung have one that says so.

        Args:
            timeout: seconds from now on.
        """
        deadline = time.monotonic() + timeout
        limit = f"no report within {timeout:g} s"
        hurried = False
        while waiting := [host for host in self._hosts if not host.reports]:
            left = max(0.0, min(_LOOK_S, deadline - time.monotonic()))
            ready = connection.wait([host.end for host in waiting], left)
            for host in waiting:
                if host.end in ready:
                    host.read()
            if time.monotonic() >= deadline:
                for host in waiting:
                    if not host.reports:
                        host.give_up(limit)
            lost = self._lost()
            if lost is not None and not hurried:
                hurried = True
                deadline = min(deadline, time.monotonic() + GRACE_S)
                limit = f"no report {GRACE_S:g} s after rank {lost} had failed"
        self.broken = self.broken or any(host.died for host in self._hosts)
        return [report for host in self._hosts for report in host.take()]

    def _lost(self) -> int | None:
        """A rank that did not do its part, for which others may wait in vain."""
        for host in self._hosts:
            if host.died or any(r.stage not in ("", self._stage) for r in host.reports):
                return host.ranks[0]
        return None

    def close(self) -> None:
        """Ends every rank: they may end by themselves, and are killed if they do not."""
        for host in self._hosts:
            host.submit(None)
            host.end.close()
        deadline = time.monotonic() + (0.0 if self.broken else GRACE_S)
        for host in self._hosts:
            host.process.join(max(0.0, deadline - time.monotonic()))
            if host.process.is_alive():
                host.process.kill()
            host.process.join()
            host.process.close()


class _Host:
    """One process with one rank, or with all of them as threads, and the pipe to it."""

    def __init__(
        self, ranks: list[int], environment: Mapping[str, str], work: Work, others: list[Connection]
    ) -> None:
        context = get_context("fork")
        self.ranks = ranks
        self.reports: list[Report] = []
        self.died = False
        self.end, far = context.Pipe()
        self._inbox = Inbox(self.end.fileno())
        self.process = context.Process(
            target=_serve,
            args=(far, [*others, self.end], ranks, dict(environment), work),
            name=f"rank {ranks[0]}",
            daemon=True,
        )
        with warnings.catch_warnings():
            # Python warns of fork() beside threads; numpy's own survive it.
            warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
            self.process.start()
        far.close()

    def submit(self, call: Call | None) -> None:
        """Sends a call, or None to end the process."""
        self.reports = []
        try:
            self.end.send(call)
        except OSError:
            return  # it has ended, which read() will say

    def read(self) -> None:
        """Takes what has come of the reports; there must be something."""
        try:
            self.reports = self._inbox.read() or []
        except (EOFError, OSError):
            self.process.join(GRACE_S)
            code = self.process.exitcode
            how = "still running" if code is None else f"exit code {code}"
            if code is not None and code < 0:
                how = f"killed by {_signal_name(-code)}"
            self._fail("died", f"the rank's process ended without a report: {how}")

    def give_up(self, limit: str) -> None:
        if _is_stopped(self.process.pid):
            self._fail("stopped", f"{limit}: a signal or a debugger had stopped it; it was ended")
        else:
            self._fail("hung", f"{limit}; the rank was ended")
        self.process.kill()

    def take(self) -> list[Report]:
        reports, self.reports = self.reports, []
        return reports

    def _fail(self, name: str, message: str) -> None:
        self.died = True
        self.reports = [Report("execute", -1, name, message) for _ in self.ranks]


def _is_stopped(pid: int | None) -> bool:
    """Whether a process is stopped, as by SIGSTOP: then others hang because of it."""
    try:
        # The state follows the name, which stands in parentheses and may hold any character.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def _signal_name(number: int) -> str:
    """The signal's name; real-time signals but the first and the last have a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _serve(
    end: Connection,
    others: Sequence[Connection],
    ranks: Sequence[int],
    environment: Mapping[str, str],
    work: Work,
) -> None:
    """Answers calls until there are no more."""
    for other in others:
        other.close()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who reads the reports is told
    while True:
        try:
            call = end.recv()
        except (EOFError, ConnectionError):
            return
        if call is None:
            return
        reports = _on_threads(call, ranks, work) if len(ranks) > 1 else [work(call, ranks[0])]
        try:
            post(end.fileno(), reports)
        except ConnectionError:
            return  # the one who asked has ended: nobody is there to be told


def _on_threads(call: Call, ranks: Sequence[int], work: Work) -> list[Report]:
    reports: dict[int, Report] = {}

    def run(rank: int) -> None:
        reports[rank] = work(call, rank)

    threads: list[Any] = [Thread(target=run, args=(rank,), daemon=True) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    missing = Report("execute", -1, "died", "the rank's thread ended without a report")
    return [reports.get(rank, missing) for rank in ranks]


class Pools:
    """The pools of a run, one per number of ranks and kind of ranks. Closing it ends them all."""

    def __init__(self, environment: Mapping[str, str], work: Work = execute) -> None:
        self._environment = environment
        self._work = work
        self._pools: dict[tuple[int, bool], Pool] = {}

    def of(self, call: Call) -> Pool:
        """The ranks for a call, made anew if they broke."""
        key = (call.rank_size, call.threads)
        pool = self._pools.get(key)
        if pool is not None and pool.broken:
            pool.close()
            pool = None
        if pool is None:
            rank_size, threads = key
            pool = Pool(rank_size, self._environment, threads=threads, work=self._work)
            self._pools[key] = pool
        return pool

    def __enter__(self) -> Pools:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
