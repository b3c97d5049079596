"""Where the ranks of backend cuda are: processes or threads, on one simulated GPU or several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import collops
from collops.testing import run_ranks
from patience import patience
from tests.gpu.gpu_ranks import as_threads

PROCESSES = "processes on many GPUs"
PROCESSES_ON_ONE = "processes on one GPU"
THREADS = "threads on many GPUs"
# Each reads the others' tensors where they lie, and needs a stream of its own.
THREADS_ON_ONE = "threads on one GPU"
EVERYWHERE = [PROCESSES, PROCESSES_ON_ONE, THREADS, THREADS_ON_ONE]


def choose(gpu: Any, rank: int, where: str) -> None:
    """The rank's GPU."""
    gpu.choose(0 if where in (PROCESSES_ON_ONE, THREADS_ON_ONE) else rank)
    assert gpu.cuda is not None  # makes the context current


def fields(where: str, name: str = "") -> dict[str, Any]:
    """What a struct of such a rank has."""
    threads = where in (THREADS, THREADS_ON_ONE)
    mode = collops.CommMode.COMM_MULTI_THREAD if threads else collops.CommMode.COMM_MULTI_PROCESS
    return {"backend": "cuda", "comm_domain": name, "comm_mode": mode}


def communicator(gpu: Any, rank: int, ranks: int, where: str, name: str) -> Any:
    """A rank's communicator, on its GPU."""
    choose(gpu, rank, where)
    return collops.init(rank, ranks, timeout_s=patience(60), **fields(where, name))


def results(where: str, ranks: int, work: Callable[[int], Any], **env: str) -> list[Any]:
    """work(rank) of every rank."""
    if where in (THREADS, THREADS_ON_ONE):
        return as_threads(ranks, work, **env)
    return run_ranks(work, ranks, env=env)
