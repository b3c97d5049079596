"""Runs work on the ranks of a process group of torch.distributed."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import collops.torch
from collops.testing import run_ranks
from patience import patience

# A forked child of a process whose OpenMP threads have run would wait for them.
torch.set_num_threads(1)
TIMEOUT_S = patience(60)


def run_group(
    work: Callable[..., Any],
    size: int,
    *args: Any,
    backend: str = "collops",
    timeout_s: float = TIMEOUT_S,
    env: dict[str, str] | None = None,
    choose_device: Callable[[int], object] = lambda rank: None,
) -> list[Any]:
    """The results of ``work(rank, *args)`` on the ranks of a new default group, in rank order."""

    def main(rank: int, path: str) -> Any:
        choose_device(rank)
        dist.init_process_group(
            backend,
            init_method=f"file://{path}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout_s),
        )
        try:
            return work(rank, *args)
        finally:
            dist.destroy_process_group()

    with tempfile.TemporaryDirectory() as folder:
        return run_ranks(main, size, f"{folder}/store", env=env or {})


def default_group() -> collops.torch.Group:
    """The group of all ranks."""
    group = dist.group.WORLD
    assert isinstance(group, collops.torch.Group)
    return group


def free_port() -> int:
    """A port of this host that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def total(group: Any = None) -> float:
    """The sum of the ranks' numbers in the world, plus 1 each, over a group."""
    x = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(x, group=group)
    return float(x)
