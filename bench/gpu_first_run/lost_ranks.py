"""A rank that is killed, or late: lost_ranks.py cuda|nccl killed|late.

Three ranks as processes of GPU 0, with a time-out of 4 s. Ends with 1 unless ranks 0 and 2 hear of
it in time, by an error that names rank 1; go on without a rank that is killed; and close at once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time

TIMEOUT_S = 4.0
# Two looks of the watcher, and a call.
SOON_S = 1.0
# Of a new group, which NCCL may take seconds to connect.
ANEW_S = 10.0
SIZES = [1, 2, 3]


def work(rank: int, backend: str, kind: str, job: str) -> None:
    """What each rank runs."""
    os.environ.update(COLLOPS_RANK=str(rank), COLLOPS_RANK_SIZE="3", COLLOPS_JOB_ID=job)
    import torch

    import collops

    torch.cuda.set_device(0)
    torch.cuda.set_stream(torch.cuda.Stream())
    begin = time.perf_counter()
    comm = collops.init(backend=backend, timeout_s=TIMEOUT_S)
    x = torch.arange(256.0, device="cuda").repeat(rank + 1, 1) + rank
    out = comm.all_gatherv(x, SIZES)
    torch.cuda.synchronize()
    assert [row[0].item() for row in out] == [0.0, 1.0, 1.0, 2.0, 2.0, 2.0]
    print(f"rank {rank}: first call {time.perf_counter() - begin:.2f} s", flush=True)
    begin = time.perf_counter()
    for _ in range(300):
        comm.all_gatherv(x, SIZES, out=out)
    torch.cuda.synchronize()
    print(
        f"rank {rank}: {(time.perf_counter() - begin) / 300e-6:.1f} us a call of 1 KiB", flush=True
    )
    time.sleep(0.5)
    if rank == 1:
        if kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(2 * TIMEOUT_S)
        comm.close()
        return
    most_s = SOON_S if kind == "killed" else TIMEOUT_S + SOON_S
    begin = time.perf_counter()
    error: Exception | None = None
    try:
        while time.perf_counter() - begin < 3 * TIMEOUT_S:
            comm.all_gatherv(x, SIZES, out=out)
            torch.cuda.synchronize()
            comm.check()
    except collops.Error as found:
        error = found
    took_s = time.perf_counter() - begin
    print(f"rank {rank}: {type(error).__name__} after {took_s:.2f} s: {error}", flush=True)
    assert error is not None and took_s < most_s, "too late"
    if kind == "killed":
        begin = time.perf_counter()
        comm = comm.shrink(timeout_s=ANEW_S)
        out = comm.all_gatherv(x, [1, 3])
        torch.cuda.synchronize()
        assert [row[0].item() for row in out] == [0.0, 2.0, 2.0, 2.0]
        print(f"rank {rank}: goes on after {time.perf_counter() - begin:.2f} s", flush=True)
    begin = time.perf_counter()
    comm.close()
    closed_s = time.perf_counter() - begin
    print(f"rank {rank}: closed in {closed_s:.2f} s", flush=True)
    assert closed_s < SOON_S, "too late"


def main() -> int:
    """Starts the ranks; 1 if rank 0 or 2 failed."""
    backend, kind = sys.argv[1:3]
    context = multiprocessing.get_context("spawn")
    job = f"lost{os.getpid()}"
    ranks = [
        context.Process(target=work, args=(rank, backend, kind, job), daemon=True)
        for rank in range(3)
    ]
    for rank in ranks:
        rank.start()
    for rank in (0, 2):
        ranks[rank].join()
    return 0 if ranks[0].exitcode == ranks[2].exitcode == 0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
