"""Runs work on the ranks of a process group that have an NPU each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from groups import run_group

BOTH = "npu:collops,cpu:collops"


def run_npu_group(
    work: Callable[..., Any], size: int, *args: Any, backend: str = BOTH, **options: Any
) -> list[Any]:
    """As run_group() of the tests on CPUs; rank r has NPU r."""

    def choose(rank: int) -> None:
        torch.npu.set_device(rank)

    return run_group(work, size, *args, backend=backend, choose_device=choose, **options)
