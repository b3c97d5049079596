"""examples/torch: the serving programs run under torchrun and agree with what they compare with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs import run_example

pytest.importorskip("torch")


def test_uneven_inference(tmp_path: Path) -> None:
    done = run_example("torch/uneven_inference.py", tmp_path, "--requests", "8", ranks=3)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "8 requests on 3 ranks: [1, 3, 4] each, in one all_gather"
    assert lines[2] == "with padding 12 vectors would travel, not 8"
    assert lines[-1] == "equal to one process doing it all"


def test_dp_attention(tmp_path: Path) -> None:
    done = run_example("torch/dp_attention.py", tmp_path, "--tokens", "64", ranks=2)
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
    done = run_example(f"torch/{name}", tmp_path, option)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
