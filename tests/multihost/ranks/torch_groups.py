"""Groups of torch.distributed on ranks of two hosts: all, of both hosts, and of one.

Its arguments: the backend of the default group; without torchrun, where the ranks meet, this
process's rank and the number of ranks.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import collops.torch

LIMIT = timedelta(seconds=float(os.environ["COLLOPS_TIMEOUT_S"]))


def result(group: Any, ranks: list[int], rank: int) -> str:
    """The backend of a group, and the sum of what its ranks have gathered and summed."""
    assert isinstance(group, collops.torch.Group)
    outs = [torch.zeros(r + 1) for r in ranks]
    dist.all_gather(outs, torch.full((rank + 1,), float(rank)), group=group)
    work = dist.all_reduce(torch.cat(outs), group=group, async_op=True)
    work.wait()
    return f"{group.communicator.backend} {int(work.result()[0].sum())}"


def main() -> None:
    """Prints the backend and the result of each group."""
    backend, *where = sys.argv[1:]
    place: dict[str, Any] = {}
    if where:
        place = {"init_method": where[0], "rank": int(where[1]), "world_size": int(where[2])}
    dist.init_process_group(backend, timeout=LIMIT, **place)
    rank, size = dist.get_rank(), dist.get_world_size()
    everyone = list(range(size))
    found = []
    for ranks in (everyone, sorted({1, size - 1}), [size - 2, size - 1]):
        group = dist.new_group(ranks, backend="collops", timeout=LIMIT)
        if ranks == everyone:
            whole = dist.group.WORLD if backend == "collops" else group
        if rank in ranks:
            found.append(result(group, ranks, rank))
    peer = size - 1 - rank
    out = torch.zeros(3)
    sent = dist.isend(torch.full((3,), float(rank)), peer, group=whole)
    dist.recv(out, peer, group=whole)
    assert sent is not None
    sent.wait()
    # One write, so that lines of two ranks do not mix: torchrun starts Python unbuffered.
    sys.stdout.write(f"rank {rank}: {', '.join(found)}; from {int(out[0])}\n")
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
