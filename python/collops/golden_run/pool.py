"""Ranks that are kept alive from case to case: processes, or threads of one process."""

from __future__ import annotations

import math
import os
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from collops.golden_run.rank import Report, execute
from collops.launch.mail import post
from collops.launch.processes import RankProcess, end_all, new_job_id, start, watch
from collops.launch.threads import run_on_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from multiprocessing.connection import Connection

    from collops.golden_run.calls import Call

    Work = Callable[[Call, int], Report]

# Once a rank has failed, the others soon learn of it, or wait for nothing.
GRACE_S = 3.0


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
        self.broken = False
        self._stage = ""
        self._processes: list[RankProcess] = []
        own = {**environment, "COLLOPS_JOB_ID": new_job_id("golden")}
        groups = [list(range(rank_size))] if threads else [[rank] for rank in range(rank_size)]
        for ranks in groups:
            start(self._processes, ranks, _serve, (ranks, own, work), daemon=True, apart=True)

    def submit(self, call: Call) -> None:
        """Gives every rank the call; returns at once."""
        self._stage = call.expected.stage
        for process in self._processes:
            process.ask(call)

    def collect(self, timeout: float) -> list[Report]:
        """Returns every rank's report; those that died or hung have one that says so.

        Args:
            timeout: seconds from now on.
        """
        late, first = watch(self._processes, timeout, GRACE_S, self._failed)
        limit = f"no report within {timeout:g} s"
        if first is not None:
            limit = f"no report {GRACE_S:g} s after rank {first} had failed"
        given_up = {process.ranks[0]: _give_up(process, limit) for process in late}
        reports: list[Report] = []
        for process in self._processes:
            report = given_up.get(process.ranks[0]) or _fault(process)
            self.broken = self.broken or report is not None
            reports += [report for _ in process.ranks] if report else process.report
        return reports

    def _failed(self, process: RankProcess) -> bool:
        """Whether a rank did not do its part, for which others may wait in vain."""
        if process.silent:
            return False
        return bool(_fault(process)) or any(
            report.stage not in ("", self._stage) for report in process.report
        )

    def close(self) -> None:
        """Ends every rank: they may end by themselves, and are killed if they do not."""
        for process in self._processes:
            process.ask(None)
        end_all(self._processes, 0.0 if self.broken else GRACE_S)


def _fault(process: RankProcess) -> Report | None:
    """The report on a process that has none of its own."""
    if process.problem is not None:
        return Report("execute", -1, "died", f"the rank's report is unreadable: {process.problem}")
    if process.lost:
        said = f"the rank's process ended without a report: {process.lost}"
        return Report("execute", -1, "died", said)
    return None


def _give_up(process: RankProcess, limit: str) -> Report:
    name, message = "hung", f"{limit}; the rank was ended"
    if _is_stopped(process.process.pid):
        name = "stopped"
        message = f"{limit}: a signal or a debugger had stopped it; it was ended"
    process.process.kill()
    return Report("execute", -1, name, message)


def _is_stopped(pid: int | None) -> bool:
    """Whether a process is stopped, as by SIGSTOP: then others hang because of it."""
    try:
        # The state follows the name, which stands in parentheses and may hold any character.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def _serve(
    end: Connection, ranks: Sequence[int], environment: Mapping[str, str], work: Work
) -> None:
    """Answers calls until there are no more."""
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
    reports, _ = run_on_threads(ranks, partial(work, call), math.inf)
    missing = Report("execute", -1, "died", "the rank's thread ended without a report")
    return [reports[rank] or missing for rank in ranks]


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
