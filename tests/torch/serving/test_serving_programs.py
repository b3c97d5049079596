"""examples/torch: the serving programs run under torchrun and agree with what they compare with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from patience import patience

pytest.importorskip("torch")

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "torch"


def run(folder: Path, name: str, ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program on ranks, from a folder that has nothing to do with it."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*command, "--nproc-per-node", str(ranks), str(FOLDER / name), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=patience(100),
    )


def test_uneven_inference(tmp_path: Path) -> None:
    done = run(tmp_path, "uneven_inference.py", 3, "--requests", "8")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "8 requests on 3 ranks: [1, 3, 4] each, in one all_gather"
    assert lines[2] == "with padding 12 vectors would travel, not 8"
    assert lines[-1] == "equal to one process doing it all"


def test_dp_attention(tmp_path: Path) -> None:
    done = run(tmp_path, "dp_attention.py", 2, "--tokens", "64")
    assert done.returncode == 0, done.stderr
    _, _, *rows, verdict = done.stdout.splitlines()
    assert verdict == "padded and uneven agree"
    cells = [re.split(r"\s{2,}", row) for row in rows]
    assert [int(row[1]) for row in cells] == [128, 96, 65, 64]
    assert all(float(row[2]) > 0 and float(row[3]) > 0 for row in cells)
    assert [row[-1] for row in cells] == ["yes"] * 4


@pytest.mark.parametrize(
    ("name", "option", "words"),
    [
        ("uneven_inference.py", "--requests=-1", "must be 0 or more, got -1"),
        ("dp_attention.py", "--tokens=0", "must be 1 or more, got 0"),
        ("uneven_inference.py", "--requests=1", "error: run it by torchrun --nproc-per-node 2; "),
        ("dp_attention.py", "--tokens=1", "error: run it by torchrun --nproc-per-node 2; "),
    ],
)
def test_a_wrong_start_is_refused(tmp_path: Path, name: str, option: str, words: str) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / name), option],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patience(100),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
