"""Ranks that are processes of one GPU: what is said about that."""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest

import collops
from collops.testing import run_ranks
from patience import patience
from tests.gpu.gpu_ranks import BACKENDS

WAYS = {  # of 4 ranks: the GPU of each, and how many warnings which rank gets
    "two on each of two GPUs": ([0, 1, 1, 0], "0", {0: "rank 3", 1: "rank 2"}),
    "all on one GPU": ([5, 5, 5, 5], "0", {0: "rank 1, 2, 3"}),
    "one GPU each": ([0, 1, 2, 3], "0", {}),
    "NVIDIA MPS": ([0, 0, 0, 0], "1", {}),
}


class Lines(logging.Handler):
    """What was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@BACKENDS
@pytest.mark.parametrize("way", WAYS)
def test_processes_of_one_gpu_are_warned_once(gpu: Any, backend: str, way: str) -> None:
    devices, mps, expected = WAYS[way]

    def work(rank: int) -> list[str]:
        os.environ["COLLOPS_SIM_MPS"] = mps
        logged = Lines()
        logging.getLogger("collops").addHandler(logged)
        gpu.choose(devices[rank])
        for name in "first", "second":
            collops.init(rank, 4, backend=backend, comm_domain=name, timeout_s=patience(60)).close()
        return [line for line in logged.lines if "shares GPU-73696d75" in line]

    found = run_ranks(work, 4, env={"NCCL_MULTI_RANK_GPU_ENABLE": "1"})
    for rank, lines in enumerate(found):
        assert len(lines) == (rank in expected)
        for line in lines:
            assert f"rank {rank} shares" in line and f"({expected[rank]}): " in line
            assert "threads of one process, or start NVIDIA MPS" in line


@BACKENDS
def test_threads_of_one_gpu_are_not(gpu: Any, backend: str) -> None:
    logged = Lines()

    def work(rank: int) -> None:
        gpu.choose(0)
        collops.init(rank, 2, backend=backend, comm_domain="thr", timeout_s=patience(60)).close()

    def alone(_: int) -> list[str]:
        logging.getLogger("collops").addHandler(logged)
        run_ranks(work, 2, threads=True)
        return logged.lines

    assert run_ranks(alone, 1, env={"NCCL_MULTI_RANK_GPU_ENABLE": "1"}) == [[]]
