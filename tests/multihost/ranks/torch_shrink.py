"""A group of torch.distributed on two hosts that goes on without rank 0, which has had the store.

Its arguments: where the ranks meet, this process's rank and the number of ranks.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import collops.torch


def total() -> float:
    """The sum of the ranks' numbers, plus 1 each."""
    x = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(x)
    return x.item()


def main() -> None:
    """Prints the rank in the new group, its size, and sums over it and over another new group."""
    where, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    limit = timedelta(seconds=float(os.environ["COLLOPS_TIMEOUT_S"]))
    dist.init_process_group("collops", init_method=where, rank=rank, world_size=size, timeout=limit)
    total()
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            total()
    except collops.PeerLostError:
        new = collops.torch.shrink()
    again = dist.new_group(list(range(new.size())))  # meets at the new group's store
    x = torch.ones(1)
    dist.all_reduce(x, group=again)
    place = f"{dist.get_rank()} of {dist.get_world_size()}"
    print(f"rank {rank}: {place}, {new.communicator.backend} {total():g} {x.item():g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
