"""The programs of bench/ under the MPIs that pip installs, built by their own mpicxx."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collops.bench import runs
from patience import patience

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = patience(290)
NAMES = "all_gather_v reduce_scatter_v all_reduce broadcast all_to_all_v send_recv send".split()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", ["openmpi", "mpich"])
def test_every_call_of_an_mpi_is_right(
    way: str, place: Callable[[str], Any], tmp_path: Path
) -> None:
    prefix = place(way).programs.parent
    operators = [f"{name}:{dtype}" for name in NAMES for dtype in ("f32", "bf16")]
    words = ["--mpi", prefix, "--folder", tmp_path, "--rounds", "1", "--iterations", "3"]
    words += ["--sizes", "100,64k", "--skew", "3:5,1:2:3", "--settings", "tuned"]
    words += ["--calls", ",".join(operators)]
    command = [sys.executable, "-m", "collops", "bench", "cpp", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    points = runs.points_of(json.loads((tmp_path / "run.json").read_text()))
    measured = {
        (point["operator"], point["dtype"], point["shares"], point["bytes"], point["way"])
        for point in points
        if point["peer"] != "collops" and "unsupported" not in point
    }
    for operator in operators:
        name, _, dtype = operator.partition(":")
        for shares in ("3:5", "1:2:3"):
            for size in (100, 64 << 10):
                assert any((name, dtype, shares, size) == one[:4] for one in measured)
    assert {way for *_, way in measured} >= {"native", "user_op", "exchange_add"}
