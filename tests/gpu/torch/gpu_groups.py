"""Runs work on the ranks of a process group that have a simulated GPU each."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import simulated_torch
import torch
from groups import run_group

BOTH = "cpu:collops,cuda:collops"
BACKENDS = ("nccl", "cuda")
# Memory that is freed too early ends the process; what torch calls may wait for kernels.
STRICT = {"COLLOPS_SIM_STRICT": "1", "COLLOPS_SIM_WAITS_OF": "_core"}


def on(backend: str) -> dict[str, str]:
    """The environment in which CUDA tensors go to a backend."""
    return {} if backend == "nccl" else {"COLLOPS_BACKEND": f"nccl={backend}"}


def choose(rank: int) -> None:
    """Gives this process's torch the GPUs, and makes the one of that number current."""
    simulated_torch.install(Path(os.environ["COLLOPS_SIM_GPU"]))
    torch.cuda.set_device(rank)


def run_gpu_group(
    work: Callable[..., Any],
    size: int,
    *args: Any,
    backend: str = BOTH,
    env: dict[str, str] | None = None,
    **options: Any,
) -> list[Any]:
    """As run_group() of the tests on CPUs; rank r has GPU r."""
    env = STRICT | (env or {})
    return run_group(work, size, *args, backend=backend, choose_device=choose, env=env, **options)
