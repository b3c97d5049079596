"""The simulated libcuda, NCCL and cuBLASLt themselves, without collops's backends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from collops.testing import run_ranks
from tests.gpu.simulated.simulated_driver import Driver
from tests.gpu.simulated.simulated_nccl import NcclRank


@pytest.fixture
def on_gpu() -> Callable[..., Any]:
    """Runs a function of a `Driver` in a process of its own, and returns its result: a process that
    has called cuInit cannot fork ranks any more."""

    def run(work: Callable[[Driver], Any], device: int = 0, **env: str) -> Any:
        variables = {"COLLOPS_SIM_STRICT": "0", **env}
        return run_ranks(lambda _: work(Driver(device)), 1, env=variables)[0]

    return run


@pytest.fixture
def on_gpus() -> Callable[..., list[Any]]:
    """The same in several processes; the function gets the rank, too, whose device it is."""

    def run(work: Callable[[Driver, int], Any], ranks: int, **env: str) -> list[Any]:
        variables = {"COLLOPS_SIM_STRICT": "0", **env}
        return run_ranks(lambda rank: work(Driver(rank), rank), ranks, env=variables)

    return run


@pytest.fixture
def on_ranks(tmp_path: Path) -> Callable[..., list[Any]]:
    """Runs a function of a `NcclRank` on each of several ranks, whose communicator is made unless
    `init` is False."""

    def run(
        work: Callable[[NcclRank], Any],
        ranks: int,
        threads: bool = False,
        init: bool = True,
        blocking: int = 1,
        **env: str,
    ) -> list[Any]:
        # A folder for each run: a rank would read the id that an earlier run has left there.
        folder = Path(mkdtemp(dir=tmp_path))

        def one(rank: int) -> Any:
            made = NcclRank(rank, ranks, folder)
            if init:
                assert made.init(blocking) == 0, made.text()
            return work(made)

        variables = {"COLLOPS_SIM_STRICT": "0", **env}
        return run_ranks(one, ranks, env=variables, threads=threads)

    return run
