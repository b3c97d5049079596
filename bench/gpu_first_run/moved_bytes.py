"""One call of eight ranks on GPU 0 between cuProfilerStart and cuProfilerStop, for ncu.

Run by `ncu --replay-mode app-range`: the kernels of the ranks wait for each other, so they cannot
be run one by one. It prints the bytes that it must move: each x read once, each result written.
"""

from __future__ import annotations

import ctypes
import os
import threading
import traceback

import numpy as np

import collops
from collops.golden_run.backends import OwnMemory
from collops.launch.init import thread_rank
from collops.launch.processes import new_job_id, run_on_threads

RANKS, LENGTH, LIMIT_S = 8, 64 << 20, 30.0


def main() -> int:
    """Makes one warm call, then the counted one."""
    os.environ["COLLOPS_JOB_ID"] = new_job_id("moved")
    driver = ctypes.CDLL("libcuda.so.1")
    meeting = threading.Barrier(RANKS)
    memory = OwnMemory()

    def work(rank: int) -> str:
        thread_rank.rank, thread_rank.size = rank, RANKS
        try:
            return gathered(rank)
        except Exception:
            meeting.abort()
            return traceback.format_exc()

    def gathered(rank: int) -> str:
        memory.choose_device(rank)
        comm = collops.init(backend="cuda", timeout_s=LIMIT_S)
        param = collops.AllGatherParam(
            rank=rank,
            rank_size=RANKS,
            backend="cuda",
            hccl_comm=comm,
            comm_mode=collops.CommMode.COMM_MULTI_THREAD,
        )
        gather = collops.Operation(param)
        length = LENGTH // RANKS // 2
        x = memory.to_device(np.full((length,), rank, np.float16), "float16")
        out = collops.cuda_empty((RANKS, length), "float16")
        assert gather.get_workspace_size([x], [out]) == 0
        for counted in (False, True):
            meeting.wait()
            if counted and rank == 0:
                driver.cuProfilerStart()
            meeting.wait()
            gather.execute([x], [out], None, stream=memory.stream())
            got = memory.from_device(out)
            meeting.wait()
            if counted and rank == 0:
                driver.cuProfilerStop()
        comm.close()
        right = all((block == number).all() for number, block in enumerate(got))
        return "" if right else "a result is wrong"

    reports, running = run_on_threads(range(RANKS), work, LIMIT_S, 5.0, failed=bool)
    print(f"AllGather of {RANKS} ranks must read {LENGTH} and write {RANKS * LENGTH} bytes")
    problems = [f"rank {rank}: {report}" for rank, report in reports.items() if report]
    print("\n".join(problems + [f"rank {rank} did not end" for rank in running]))
    return 1 if problems or running else 0


if __name__ == "__main__":
    raise SystemExit(main())
