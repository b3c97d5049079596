"""Ranks that `collops run` has started, on one host or several; this process is one of them."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import collops
from collops.golden_run.pool import GRACE_S
from collops.golden_run.rank import Report, execute
from collops.launch.rank_table import read_rank_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.golden_run.calls import Call
    from collops.golden_run.jobs import Job

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
