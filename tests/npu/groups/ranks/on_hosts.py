"""One rank of a job on several hosts: calls on NPU tensors, and groups across and inside hosts."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch_npu  # noqa: F401

import collops


def numbers(rank: int, rows: int) -> torch.Tensor:
    """Rows of two numbers that differ in every rank and position; on the CPU."""
    return torch.arange(rows * 2, dtype=torch.float32).reshape(rows, 2) + 100 * rank


def check_gather(comm: collops.Communicator, rank: int, members: list[int]) -> None:
    """Member r has r + 1 rows."""
    sizes = [r + 1 for r in members]
    got = comm.all_gatherv(numbers(rank, rank + 1).npu(), sizes).cpu()
    assert torch.equal(got, torch.cat([numbers(r, r + 1) for r in members])), got


def check_sums(comm: collops.Communicator, rank: int, ranks: range) -> None:
    """AllReduce, ReduceScatterV and a product whose partial sums are scattered."""
    total = comm.all_reduce(numbers(rank, 3).npu()).cpu()
    assert torch.equal(total, sum(numbers(r, 3) for r in ranks)), total
    sizes = [r + 1 for r in ranks]
    whole = sum(numbers(r, sum(sizes)) for r in ranks)
    own = comm.reduce_scatterv(numbers(rank, sum(sizes)).npu(), sizes).cpu()
    assert torch.equal(own, whole.split(sizes)[rank]), own
    product = comm.all_gather_matmul_reduce_scatter(
        numbers(rank, len(ranks)).npu(), torch.ones(2, 3).npu(), ag_dim=1, rs_dim=len(ranks)
    )
    row = sum(numbers(r, len(ranks))[rank].sum() for r in ranks)
    assert torch.equal(product.cpu(), torch.full((1, 3), float(row))), product.cpu()


def check_messages(comm: collops.Communicator, rank: int, last: int) -> None:
    """From the first rank to the last and back; the last one comes late."""
    if rank == last:
        time.sleep(0.5)
    for sender, receiver in ((0, last), (last, 0)):
        if rank == sender:
            comm.send(numbers(rank, 3).npu(), receiver)
        elif rank == receiver:
            got = comm.recv(numbers(9, 3).npu(), sender).cpu()
            assert torch.equal(got, numbers(sender, 3)), got


def main(placement: list[int], meet_at: str) -> None:
    """Without `meet_at` the ranks are connected by the job's rank table, else by root info."""
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    if meet_at:
        del os.environ["RANK_TABLE_FILE"]
    comm = collops.init(backend="hccl", job_id="hosts" if meet_at else "", meet_at=meet_at)
    rank, ranks = comm.rank, range(comm.size)
    check_gather(comm, rank, list(ranks))
    check_sums(comm, rank, ranks)
    check_messages(comm, rank, comm.size - 1)
    parts = []
    for colors in (placement, [r % 2 for r in ranks]):  # inside hosts, and across them
        parts.append(comm.split(colors[rank]))
        check_gather(parts[-1], rank, [r for r in ranks if colors[r] == colors[rank]])
    comm.barrier()
    for group in (*parts, comm):
        group.close()
    print(f"rank {rank} of {comm.size}: done")


main([int(host) for host in sys.argv[1].split(",")], sys.argv[2])
