"""LinearParallel over windows: waits, memory of a call, and bits of results."""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collops
from collops import LinearParallelParam, ParallelType, TwoDimTPInfo
from collops.testing import run_ranks
from tests.unit.communicator.waiting_call import until_asleep

FORK = multiprocessing.get_context("fork")
STRIP = 384  # columns that are multiplied at a time
LINE = re.compile(r"rows of rank (\d+) strip (\d+)/(\d+) on rank (\d+) at ([\d.e+-]+) ms")
KIND_4 = ParallelType.ALL_GATHER_LINEAR_REDUCE_SCATTER


def planned(param: LinearParallelParam, ins: list[Any]) -> tuple[collops.Operation, Any, Any]:
    """An operation, its output and its scratch memory, all touched."""
    operation = collops.Operation(param)
    out = np.full(operation.infer_shape(ins)[0].shape, np.nan, ins[0].dtype)
    return operation, out, np.full(operation.get_workspace_size(ins, [out]), 1, np.uint8)


def numbers(seed: int, *shape: int) -> Any:
    """Random float32 between -1 and 1."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def tell_when_waiting(told: Any) -> None:
    """Tells the late rank when the main thread has slept for so long that all it can do is done."""
    until_asleep(10)
    told.put(None)


def late_rank(rank: int, grid: tuple[int, int], late: int, told: Any) -> Any:
    """Calls twice; the second time one rank comes when rank 0 waits for it."""
    ag_dim, rs_dim = grid
    kind = KIND_4 if rs_dim > 1 else ParallelType.ALL_GATHER_LINEAR
    param = LinearParallelParam(
        rank=rank,
        rank_size=ag_dim * rs_dim,
        backend="shm",
        type=kind,
        two_dim_tp_info=TwoDimTPInfo(ag_dim=ag_dim, rs_dim=rs_dim),
    )
    # More rows than are joined: those few wait for each other.
    ins = [numbers(rank, 40, 96), numbers(9 + rank, 5 * STRIP, 96)]
    operation, out, scratch = planned(param, ins)
    operation.execute(ins, [out], scratch)
    first = out.copy()
    os.write(2, f"-- rank {rank}\n".encode())
    if rank == 0:
        threading.Thread(target=tell_when_waiting, args=(told,)).start()
    if rank == late:
        told.get()
    operation.execute(ins, [out], scratch)
    return np.array_equal(first, out)


@pytest.mark.parametrize("grid", [(2, 1), (2, 2)], ids=["type 2", "type 4"])
def test_a_late_rank_delays_only_its_rows(
    grid: tuple[int, int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLLOPS_TRACE", "2")
    monkeypatch.setenv("COLLOPS_NUM_THREADS", "1")  # the main thread sleeps only where it waits
    monkeypatch.setattr(logging.root, "handlers", [])  # the lines go to standard error
    assert all(run_ranks(late_rank, grid[0] * grid[1], grid, 1, FORK.SimpleQueue()))
    lines = [LINE.search(line) for line in capfd.readouterr().err.splitlines()]
    found = [tuple(map(float, line.groups())) for line in lines if line]
    # Rank 0 gathers from itself and from the late rank 1. Its second call:
    on_rank_0 = [line for line in found if line[3] == 0]
    second = on_rank_0[len(on_rank_0) // 2 :]
    own = [at for rows, _, _, _, at in second if rows == 0]
    others = [at for rows, _, _, _, at in second if rows == 1]
    assert len(own) == len(others) == 5
    # Rank 0 multiplied all of its own rows, then slept for 90 ms or more, and then had rank 1's.
    assert min(others) - max(own) > 80
    assert all(a < b for a, b in pairwise(own))


def grown(rank: int, kind: ParallelType, rows: int, k: int, n: int) -> tuple[int, int, int]:
    """The most bytes that the first call adds to this process; its workspace; its output."""
    param = LinearParallelParam(rank=rank, rank_size=2, backend="shm", type=kind)
    ins = [numbers(rank, rows, k), numbers(rank + 2, n, k)]
    operation, out, scratch = planned(param, ins)
    collops.init().barrier()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from what is there
    before = resident("VmHWM")
    operation.execute(ins, [out], scratch)
    return resident("VmHWM") - before, scratch.nbytes, out.nbytes


def resident(field: str) -> int:
    """A line of this process's status, in bytes."""
    [kibibytes] = re.findall(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kibibytes) * 1024


@pytest.mark.parametrize("kind", [ParallelType.LINEAR_ALL_REDUCE, ParallelType.ALL_GATHER_LINEAR])
def test_a_call_takes_the_memory_that_is_documented(kind: ParallelType) -> None:
    rows, k, n = 512, 64, 40 * STRIP
    gathered = rows * 2 if kind == ParallelType.ALL_GATHER_LINEAR else rows
    tile = gathered * STRIP * 4
    reduces = kind == ParallelType.LINEAR_ALL_REDUCE
    tiles = 2 * 2 * tile if reduces else 0  # two of each rank; all ranks map them
    stage = 2 << 20
    for added, scratch, out in run_ranks(grown, 2, kind, rows, k, n):
        assert added <= tiles + 2 * stage + (1 << 20)
        # A few tiles and panels, far from a float32 image of the product.
        assert scratch <= (0 if reduces else tile) + gathered * k * 4 + (STRIP * 4096) + 65536
        assert added + scratch < out / 2
