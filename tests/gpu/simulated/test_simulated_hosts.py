"""Ranks of the simulated NCCL on several hosts, for which addresses of this machine stand."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collops.testing import run_ranks
from patience import patience
from tests.gpu.simulated.simulated_nccl import REMOTE, SUM, USAGE, NcclRank, type_of

COUNT = 500
FLOAT32 = type_of(np.float32)


def on_hosts(work: Any, hosts: list[int], folder: Path, **env: str) -> list[Any]:
    """Runs a function of a `NcclRank` on each rank; `hosts` has the host of each."""

    def one(rank: int) -> Any:
        os.environ["COLLOPS_SIM_HOST_IP"] = f"127.0.0.{2 + hosts[rank]}"
        # Every host has its own devices, from 0 on.
        device = hosts[:rank].count(hosts[rank])
        return work(NcclRank(rank, len(hosts), folder, device))

    return run_ranks(one, len(hosts), env={"COLLOPS_SIM_STRICT": "0", **env})


@pytest.mark.parametrize("hosts", [[0, 1], [0, 0, 1, 1], [0, 1, 2, 0]])
def test_collectives_between_hosts(tmp_path: Path, hosts: list[int]) -> None:
    ranks = len(hosts)

    def work(one: NcclRank) -> Any:
        assert one.init() == 0, one.text()
        x = one.cuda.put(np.full(COUNT, one.rank + 1, np.float32))
        y = one.empty(ranks * COUNT, np.float32)
        one.run("ncclAllGather", x, y, COUNT, FLOAT32)
        gathered = one.read(y, (ranks, COUNT), np.float32)
        one.run("ncclAllReduce", x, x, COUNT, FLOAT32, SUM)
        return gathered[:, 7].tolist(), one.read(x, COUNT, np.float32)[9]

    expected = [float(r + 1) for r in range(ranks)], ranks * (ranks + 1) / 2
    assert on_hosts(work, hosts, tmp_path) == [expected] * ranks


def test_the_same_device_of_one_host(tmp_path: Path) -> None:
    def work(one: NcclRank) -> int:
        one.cuda.choose(0)
        return one.init()

    assert on_hosts(work, [0, 1], tmp_path) == [0, 0]
    (tmp_path / "id").unlink()
    assert on_hosts(work, [0, 0], tmp_path) == [USAGE, USAGE]


def test_a_host_that_is_gone_is_an_error_until_the_abort(tmp_path: Path) -> None:
    def work(one: NcclRank) -> Any:
        assert one.init() == 0
        x = one.empty(COUNT, np.float32)
        one.run("ncclAllReduce", x, x, COUNT, FLOAT32, SUM)  # connects
        if one.rank == 1:
            return None
        assert one.start("ncclAllReduce", x, x, COUNT, FLOAT32, SUM) == 0
        deadline = time.monotonic() + patience(60)
        while one.async_error() == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        error = one.async_error()
        assert one.nccl.ncclCommAbort(one.comm) == 0
        one.sync()
        return error, one.cuda.mistakes()

    assert on_hosts(work, [0, 1], tmp_path)[0] == (REMOTE, 0)


def test_an_address_that_is_not_here(tmp_path: Path) -> None:
    def work(one: NcclRank) -> int:
        os.environ["COLLOPS_SIM_HOST_IP"] = "192.0.2.1"
        return int(one.nccl.ncclGetUniqueId(bytes(128)))

    assert on_hosts(work, [0], tmp_path) == [2]
