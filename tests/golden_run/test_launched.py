"""`collops golden run` as every rank of `collops run`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from collops.golden_run.pool import packed, unpacked
from collops.golden_run.rank import Report
from collops.launch.rank_table import make_rank_table
from patience import patience
from tests import programs

SAMPLES = Path(__file__).resolve().parents[2] / "examples" / "golden"
CLI = [sys.executable, "-m", "collops"]


def launched(ranks: int, *words: object) -> subprocess.CompletedProcess[str]:
    golden = ["-m", "collops", "golden", "run", *map(str, words)]
    return programs.run(
        [*CLI, "run", "-n", str(ranks), *golden], capture_output=True, timeout=patience(110)
    )


def test_the_ranks_that_were_started_run_the_cases() -> None:
    files = [SAMPLES / f"{name}.csv" for name in ("all_gather_v", "reduce_scatter_v", "send")]
    done = launched(2, *files)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert all(line.startswith("[0] ") for line in lines)
    assert " 0 failed" in lines[-1] and not lines[-1].startswith("[0] 0 passed")
    assert "it has other than the 2 ranks that were started" in lines[-1]


def test_a_wrong_result_is_found_on_any_rank(tmp_path: Path) -> None:
    script = tmp_path / "spoiled.py"
    script.write_text(
        "import os, sys\n"
        "from collops.cli import main\n"
        "from collops.golden_run import pool\n"
        "from dataclasses import replace\n"
        "plain = pool.execute\n"
        "def execute(call, rank):\n"
        "    report = plain(call, rank)\n"
        "    spoiled = tuple(array + 1 for array in report.outputs) if rank == 1 else ()\n"
        "    return replace(report, outputs=spoiled or report.outputs)\n"
        "pool.execute = execute\n"
        "raise SystemExit(main())\n"
    )
    words = ["golden", "run", str(SAMPLES / "all_gather_v.csv"), "--filter", "1"]
    done = programs.run(
        [*CLI, "run", "-n", "2", str(script), *words], capture_output=True, timeout=patience(110)
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED" in done.stdout
    assert "rank 1" in done.stdout


def test_ranks_with_other_cases_are_told_so(tmp_path: Path) -> None:
    script = tmp_path / "other.py"
    script.write_text(
        "import os, sys\n"
        "from collops.cli import main\n"
        "sys.argv += ['--filter', '1-' + str(2 + int(os.environ['COLLOPS_RANK']))]\n"
        "raise SystemExit(main())\n"
    )
    words = ["golden", "run", str(SAMPLES / "all_gather_v.csv")]
    done = programs.run(
        [*CLI, "run", "-n", "2", str(script), *words], capture_output=True, timeout=patience(110)
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "rank 1 has other cases than rank 0: give all the same files" in done.stderr


@pytest.mark.parametrize(("hosts", "backend"), [(["node-a"], "shm"), (["node-a", "node-b"], "ucx")])
def test_the_default_backend_follows_the_rank_table(
    hosts: list[str], backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collops.golden_run.pool import default_backend

    table = tmp_path / "ranks.json"
    table.write_text(make_rank_table(hosts, 2))
    monkeypatch.setenv("RANK_TABLE_FILE", str(table))
    assert default_backend() == "shm"  # no rank of a launcher
    monkeypatch.setenv("COLLOPS_RANK", "0")
    assert default_backend() == backend


def test_a_report_survives_the_way() -> None:
    outputs = (
        np.arange(6, dtype=np.float16).reshape(2, 3),
        np.zeros((0, 4), np.int64),
        np.array([True, False]),
        np.array(7, np.uint16),
    )
    report = Report("execute", 8, "ERROR", "text ä", outputs, "ucx", False)
    found = unpacked(packed(report))
    assert [array.tobytes() for array in found.outputs] == [array.tobytes() for array in outputs]
    assert [(a.dtype, a.shape) for a in found.outputs] == [(a.dtype, a.shape) for a in outputs]
    assert (found.stage, found.code, found.name, found.message) == ("execute", 8, "ERROR", "text ä")
    assert (found.backend, found.took_part) == ("ucx", False)
    assert os.environ.get("COLLOPS_RANK") is None
