"""Runs work on the ranks of a process group of torch.distributed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import tempfile
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

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


def run_losing(work: Callable[..., Any], size: int, *args: Any) -> list[Any]:
    """As run_group() with rank 0's own store, of ranks that may be killed: these give None."""

    def main(rank: int, port: int, results: Any) -> None:
        place = {"rank": rank, "world_size": size, "timeout": timedelta(seconds=TIMEOUT_S)}
        dist.init_process_group("collops", init_method=f"tcp://127.0.0.1:{port}", **place)
        results.send(work(rank, *args))
        dist.destroy_process_group()

    context, port = multiprocessing.get_context("fork"), free_port()
    pipes = [context.Pipe(duplex=False) for _ in range(size)]
    ranks = [
        context.Process(target=main, args=(rank, port, pipe[1])) for rank, pipe in enumerate(pipes)
    ]
    for rank in ranks:
        rank.start()
    for _, end in pipes:
        end.close()
    try:
        found = [_received(ours, rank) for (ours, _), rank in zip(pipes, ranks, strict=True)]
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
    return found


def _received(pipe: Any, rank: Any) -> Any:
    with pipe:
        try:
            return pipe.recv() if pipe.poll(TIMEOUT_S) else "nothing in time"
        except EOFError:
            rank.join()
            return None if rank.exitcode == -signal.SIGKILL else f"ended with {rank.exitcode}"


def end_here() -> NoReturn:
    """Kills this rank."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError
