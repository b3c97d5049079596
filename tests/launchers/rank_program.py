"""One rank: gathers what the ranks of its own job send, and fails on anything of another job.

Usage: rank_program.py RANKS JOBS FOLDER TOKEN, under a launcher that starts RANKS ranks. JOBS jobs
run at once and share FOLDER; TOKEN, one letter, is this job's. Prints one line that begins with ok.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

import collops
from collops.core import core

LIMIT_S, HEAD_START_S = 2 * float(os.environ["COLLOPS_TIMEOUT_S"]), 0.2
JOB_UNIT, RANK_UNIT = 1_000_000, 1_000


def rows_of(rank: int) -> int:
    """Shares differ, and none is empty: every rank shows which job it belongs to."""
    return rank + 1


def block(token: str, rank: int) -> np.ndarray:
    """The data of a rank: different in every job, rank and position, of the same length."""
    return JOB_UNIT * ord(token) + RANK_UNIT * rank + np.arange(rows_of(rank))


def check(level: str, gathered: np.ndarray, token: str, ranks: int) -> None:
    """Fails unless the blocks are those of this job, in rank order."""
    numbers = gathered.tolist()
    senders = [(chr(number // JOB_UNIT), number // RANK_UNIT % RANK_UNIT) for number in numbers]
    foreign = sorted({sender for sender in senders if sender[0] != token})
    assert not foreign, f"{level}: job {token} got blocks of other jobs, by job and rank: {foreign}"
    expected = np.concatenate([block(token, rank) for rank in range(ranks)])
    assert numbers == expected.tolist(), f"{level}: job {token} got {numbers}"


def wait_for_all(folder: Path, stage: str, number: int) -> None:
    """Returns once so many processes, of all jobs together, have come to this stage."""
    (folder / f"{stage}-{os.getpid()}").touch()
    deadline = time.monotonic() + LIMIT_S
    while len(list(folder.glob(f"{stage}-*"))) < number:
        if time.monotonic() > deadline:
            raise SystemExit(f"the processes of all jobs did not come to {stage} in {LIMIT_S} s")
        time.sleep(0.01)


def gather_atb(token: str, rank: int, size: int, named_rank: int) -> np.ndarray:
    """The same through the two phases, in a domain that no init() has opened."""
    param = collops.AllGatherVParam(
        rank=named_rank, rank_size=size, backend="shm", comm_domain="atb"
    )
    counts = np.array([rows_of(r) for r in range(size)], np.int64)
    displs = np.cumsum(counts) - counts
    total = int(counts.sum())
    x, out = block(token, rank), np.full(total, -1, np.int64)
    tensors = [x, counts[rank : rank + 1].copy(), counts, displs, np.empty(total, np.float16)]
    operation = collops.Operation(param)
    workspace = np.empty(operation.get_workspace_size(tensors, [out]), np.uint8)
    operation.execute(tensors, [out], workspace)
    return out


def work(ranks: int, jobs: int, folder: Path, token: str, rank: int | None = None) -> None:
    """Both levels, while the other jobs do the same; a rank not given is the launcher's."""
    wait_for_all(folder, "start", ranks * jobs)
    launcher, launched_rank, _ = core().launcher()
    if (launched_rank if rank is None else rank) != 0:
        # Every rank 0 waits for its job by then: jobs that can meet do.
        time.sleep(HEAD_START_S)
    comm = collops.init(rank, None if rank is None else ranks, comm_domain="dp")
    assert comm.size == ranks, f"{comm.size} ranks, expected {ranks}"
    check("all_gatherv", comm.all_gatherv(block(token, comm.rank)), token, ranks)
    gathered = gather_atb(token, comm.rank, ranks, -1 if rank is None else rank)
    check("AllGatherV", gathered, token, ranks)
    wait_for_all(folder, "end", ranks * jobs)
    line = f"ok {token} rank {comm.rank} of {ranks} under {launcher or 'no launcher'}\n"
    os.write(sys.stdout.fileno(), line.encode())  # at once: launchers mix what ranks write in parts
    comm.close()


if __name__ == "__main__":
    work(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
