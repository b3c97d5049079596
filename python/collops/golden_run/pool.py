"""Ranks that run several cases one after the other: started here, or by `collops run`."""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import collops
from collops.golden_run.rank import DOOR, Report, execute
from collops.launch.environment import enter, place_names
from collops.launch.processes import (
    RankProcess,
    end_all,
    new_job_id,
    post,
    run_on_threads,
    start,
    watch,
)
from collops.launch.rank_table import read_rank_table

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from collops.golden_run.calls import Call
    from collops.golden_run.jobs import Job

    Work = Callable[[Call, int], Report]


# Seconds for the reports of the other ranks once a rank has failed.
GRACE_S = 3.0


class Pool:
    """A group of ranks: submit() a call, then collect() the reports. Unusable once broken.

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
        job = {**environment, "COLLOPS_JOB_ID": new_job_id("golden")}
        groups = [list(range(rank_size))] if threads else [[rank] for rank in range(rank_size)]
        for ranks in groups:
            place = {} if threads else place_names(ranks[0], rank_size, ranks[0], rank_size)
            own = (ranks, {**job, **place}, work)
            start(self._processes, ranks, _serve, own, daemon=True, apart=True)

    def submit(self, call: Call) -> None:
        """Gives every rank the call; returns at once."""
        self._stage = call.expected.stage
        for process in self._processes:
            process.ask(call)

    def collect(self, timeout: float) -> list[Report]:
        """Returns every rank's report; for a rank that died or hung, a report that says so."""
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
        """Whether a rank has failed to take part, so that others may wait for it."""
        if process.silent:
            return False
        return bool(_fault(process)) or any(
            report.stage not in ("", self._stage) for report in process.report
        )

    def close(self) -> None:
        """Ends every rank: asks it to end, and kills it if it does not."""
        for process in self._processes:
            process.ask(None)
        end_all(self._processes, 0.0 if self.broken else GRACE_S)


def _fault(process: RankProcess) -> Report | None:
    """The report on a process that has sent none."""
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
    """Whether a process is stopped, as by SIGSTOP, so that other ranks hang."""
    try:
        # The state follows the name, which is in parentheses and may contain any character.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def _serve(
    end: Connection, ranks: Sequence[int], environment: Mapping[str, str], work: Work
) -> None:
    """Runs calls and sends reports until the pipe is closed."""
    enter(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that reads the reports handles it
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
            return  # the process that reads the reports has ended


def _on_threads(call: Call, ranks: Sequence[int], work: Work) -> list[Report]:
    DOOR.close(len(ranks))
    reports, _ = run_on_threads(ranks, partial(work, call), math.inf)
    missing = Report("execute", -1, "died", "the rank's thread ended without a report")
    return [reports[rank] or missing for rank in ranks]


class Pools:
    """The pools of a run, one per number of ranks and kind of ranks. close() ends them all."""

    def __init__(self, environment: Mapping[str, str], work: Work = execute) -> None:
        self._environment = environment
        self._work = work
        self._pools: dict[tuple[int, bool], Pool] = {}

    def of(self, call: Call) -> Pool:
        """The pool for a call, a new one if the old one is broken."""
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


_DOMAIN = "golden reports"
_HEAD_BYTES = 8


def launched() -> bool:
    """Whether this process is a rank of `collops run`."""
    return "COLLOPS_RANK" in os.environ


def default_backend() -> str:
    """What runs the cases by default: ucx if the ranks are on several hosts, else shm."""
    table = os.environ.get("RANK_TABLE_FILE", "") if launched() else ""
    return "ucx" if table and len(read_rank_table(table).servers) > 1 else "shm"


class LaunchedRanks:
    """The ranks of a launcher: every one runs every call, and rank 0 gets the reports.

    Used as a Pool, and as Pools with one Pool. A rank that ends ends the run.

    Args:
        timeout: seconds that a rank waits for the others.
    """

    broken = False

    def __init__(self, timeout: float) -> None:
        os.environ.setdefault("COLLOPS_TIMEOUT_S", str(timeout))
        self._comm = collops.init(comm_domain=_DOMAIN, timeout_s=timeout + GRACE_S)
        self.rank: int = self._comm.rank
        self.size: int = self._comm.size
        self._call: Call | None = None

    def of(self, call: Call) -> LaunchedRanks:
        """These ranks, which are as many as the call's."""
        return self

    def submit(self, call: Call) -> None:
        """Takes the call."""
        self._call = call

    def collect(self, timeout: float) -> list[Report]:
        """Runs the call as this rank; returns the reports of all on rank 0, none on the others."""
        assert self._call is not None
        return self._gathered(execute(self._call, self.rank))

    def _gathered(self, report: Report) -> list[Report]:
        own = np.frombuffer(packed(report), np.uint8)
        sizes = self._comm.all_gatherv(np.array([own.size]), [1] * self.size).tolist()
        told = self._comm.gatherv(own, sizes, root=0)
        if told is None:  # this is not the root
            return []
        return [unpacked(part.tobytes()) for part in np.split(told, np.cumsum(sizes)[:-1])]

    def chosen(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs, of which those with other ranks than these are skipped.

        Raises:
            ValueError: the ranks have other jobs, as their files differ; on every rank.
        """
        names = repr([(job.number, job.name, job.action) for job in jobs])
        own = np.frombuffer(hashlib.sha256(names.encode()).digest(), np.uint8)
        told = self._comm.all_gatherv(own[None], [1] * self.size)
        for rank in range(self.size):
            if (told[rank] != told[0]).any():
                raise ValueError(
                    f"rank {rank} has other cases than rank 0: give all the same files"
                )
        return [self._runnable(job) for job in jobs]

    def _runnable(self, job: Job) -> Job:
        if job.call is None:
            return job
        reason = ""
        if job.call.threads:
            reason = "its ranks are threads of one process"
        elif job.call.rank_size != self.size:
            reason = f"it has other than the {self.size} ranks that were started"
        return replace(job, action="skip", reason=reason, call=None) if reason else job

    def __enter__(self) -> LaunchedRanks:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._comm.barrier()
        self._comm.close()


def packed(report: Report) -> bytes:
    """A report as bytes: the length of a JSON text, the text, and the outputs' bytes."""
    fields = asdict(replace(report, outputs=()))
    fields["outputs"] = [(array.dtype.str, array.shape) for array in report.outputs]
    head = json.dumps(fields).encode()
    body = b"".join(np.ascontiguousarray(array).tobytes() for array in report.outputs)
    return len(head).to_bytes(_HEAD_BYTES, "little") + head + body


def unpacked(data: bytes) -> Report:
    """The report of packed()."""
    length = int.from_bytes(data[:_HEAD_BYTES], "little")
    fields: dict[str, Any] = json.loads(data[_HEAD_BYTES : _HEAD_BYTES + length])
    begin = _HEAD_BYTES + length
    outputs = []
    for name, shape in fields["outputs"]:
        dtype = np.dtype(name)
        count = int(np.prod(shape, dtype=np.int64))
        outputs.append(np.frombuffer(data, dtype, count, begin).reshape(shape))
        begin += count * dtype.itemsize
    return Report(**{**fields, "outputs": tuple(outputs)})
