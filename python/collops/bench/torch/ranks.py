"""The ranks of a measurement with torch: a group on gloo, and one on collops.

The default group is gloo's, and a second group of the same ranks is collops's. In each round both
make the same call. Ranks are pinned for collops's calls. For gloo's they may use every core, as its
threads do, and meet in gloo's own barrier, which sleeps.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

import collops.torch  # noqa: F401  registers the backend
from collops.bench.measure import pin


class Ranks:
    """This rank, and its group of each backend."""

    def __init__(self, store: str, threads: int) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        torch.set_num_threads(threads)
        self.all_cores = frozenset(os.sched_getaffinity(0))
        # Before this rank is pinned, so that gloo's own threads may use every core.
        dist.init_process_group("gloo", init_method=store, rank=self.rank, world_size=self.size)
        pin(self.rank, threads)
        self.groups = {"collops": dist.new_group(backend="collops"), "gloo": dist.group.WORLD}
        alone = [dist.new_group([rank], backend="collops") for rank in range(self.size)]
        self.alone = alone[self.rank]

    def meet(self, backend: str) -> None:
        """Waits for all ranks in a backend's barrier."""
        dist.barrier(group=self.groups["gloo" if backend == "gloo" else "collops"])
