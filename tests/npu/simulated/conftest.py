"""The simulated CANN itself, without torch and without collops's backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from collops.testing import run_ranks
from tests.npu.simulated.simulated_rank import Rank


@pytest.fixture
def on_ranks(tmp_path: Path) -> Callable[..., list[Any]]:
    """Runs a function of a connected `Rank` on each of several ranks, and returns the results."""

    def run(work: Callable[[Rank], Any], ranks: int, **env: str) -> list[Any]:
        # A folder for each run: a rank would read the root info that an earlier run has left there.
        folder = Path(mkdtemp(dir=tmp_path))

        def one(rank: int) -> Any:
            connected = Rank(rank, ranks)
            connected.connect(folder)
            return work(connected)

        return run_ranks(one, ranks, env=env)

    return run
