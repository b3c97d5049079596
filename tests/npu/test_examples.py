"""examples/npu: the script runs on the simulated CANN, and the rank table is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collops.launch.rank_table import read_rank_table, table_refusal
from patience import patience

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "npu"


def run_script(script: Path, ranks: int) -> subprocess.CompletedProcess[str]:
    """Runs a script on ranks that `collops run` starts."""
    command = [sys.executable, "-m", "collops", "run", "-n", str(ranks)]
    return subprocess.run(
        [*command, str(script)],
        capture_output=True,
        text=True,
        timeout=patience(100),
        env=dict(os.environ),
    )


@pytest.mark.parametrize("ranks", [2, 3])
def test_uneven_batch(ranks: int) -> None:
    done = run_script(FOLDER / "uneven_batch.py", ranks)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [1, 2] if ranks == 2 else [1, 0, 3]
    for rank in range(ranks):
        said = f"rank {rank} of {ranks}: {rows[rank]} of {sum(rows)} rows, gathered and scattered"
        assert said in done.stdout


def test_the_rank_table_is_one_that_hccl_takes() -> None:
    path = FOLDER / "rank_table_two_nodes.json"
    table = read_rank_table(path)
    assert [len(table.servers), len(table.ranks)] == [2, 16]
    assert table_refusal(path, "hccl") == ""
    # Addresses that RFC 5737 keeps for documents.
    assert all(place.device_ip.startswith("198.51.100.") for place in table.ranks)
    assert all(server.name.startswith("192.0.2.") for server in table.servers)
