"""examples/: the programs run from anywhere, agree with one process, and would notice an error."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from collops.examples import uneven_batch

from tests import programs

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "uneven_batch.py"


def run_script(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the example as a script, from a folder that has nothing to do with it."""
    return programs.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_it_agrees_with_one_process(tmp_path: Path, ranks: int) -> None:
    done = run_script(tmp_path, "--ranks", str(ranks))
    assert (done.returncode, done.stderr) == (0, "")
    title, _, *rows, verdict = done.stdout.splitlines()
    documents, tokens = map(int, re.findall(r"\d+", title))
    cells = [row.split() for row in rows]
    assert [int(row[0]) for row in cells] == list(range(ranks))
    assert sum(int(row[1]) for row in cells) == documents
    assert sum(int(row[2]) for row in cells) == tokens
    assert all(row[3] == "-" or float(row[3]) <= 1 for row in cells)
    assert [row[1:] for row in cells[1:2]] == ([["0", "0", "-"]] if ranks > 1 else [])
    assert verdict == "equal to one process doing it all"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rank", "4"], "--rank 4"),
        (["--ranks", "four"], "--ranks: invalid int value: 'four'"),
        (["--ranks", "0"], "--ranks: must be from 1 to 64, got 0"),
        (["--ranks", "65"], "--ranks: must be from 1 to 64, got 65"),
        (["--ranks"], "--ranks: expected one argument"),
    ],
)
def test_a_wrong_argument_is_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = run_script(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("uneven_batch.py: ")
    assert words in line


def test_help_explains(tmp_path: Path) -> None:
    done = run_script(tmp_path, "--help")
    assert done.returncode == 0
    assert "does not divide by the number of ranks" in " ".join(done.stdout.split())
    assert "--ranks N" in done.stdout


@pytest.mark.parametrize("ranks", range(1, 9))
def test_the_batch_is_uneven(ranks: int) -> None:
    documents = uneven_batch.read_documents()
    shares = uneven_batch.deal(documents, ranks)
    assert [document for share in shares for document in share] == documents
    sizes = [len(share) for share in shares]
    assert len(sizes) == ranks
    if ranks > 1:
        assert len(documents) % ranks
        assert sizes[1] == 0
        assert len(set(sizes)) > 1


def test_documents_are_real_texts() -> None:
    documents = uneven_batch.read_documents()
    assert len(documents) == uneven_batch.DOCUMENTS
    assert len(set(documents)) == len(documents)
    assert all(0 < len(document) <= uneven_batch.CONTEXT for document in documents)
    assert len(set(map(len, documents))) > 2


def test_a_missing_hidden_unit_exceeds_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = uneven_batch.read_documents()[:3]
    expected, bound = uneven_batch.whole_layer(documents)
    weights = uneven_batch.make_weights()
    weights.down[7] = 0
    monkeypatch.setattr(uneven_batch, "make_weights", lambda: weights)
    wrong, _ = uneven_batch.whole_layer(documents)
    # ReLU is 0 on about half of the tokens; on the others nearly every element must show it.
    assert np.mean(abs(wrong - expected) > bound) > 0.3


@pytest.mark.parametrize("error", [2.0, -2.0, np.nan, np.inf])
def test_one_wrong_element_is_reported(error: float, capsys: pytest.CaptureFixture[str]) -> None:
    documents = uneven_batch.read_documents()[:4]
    shares = uneven_batch.deal(documents, 3)
    expected, bound = uneven_batch.whole_layer(documents)
    ends = np.cumsum([sum(map(len, share)) for share in shares])[:-1]
    results = np.split(expected.copy(), ends)
    assert uneven_batch.report(shares, results, expected, bound)
    results[2][3, 5] += np.float32(error * np.split(bound, ends)[2][3, 5])
    assert not uneven_batch.report(shares, results, expected, bound)
    assert capsys.readouterr().out.endswith("NOT equal to one process doing it all\n")
