"""examples/: the programs run from anywhere, agree with one process, and would notice an error."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from collops.examples import moe_layer, tensor_parallel_linear, uneven_batch

from tests.programs import run_example


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_it_agrees_with_one_process(tmp_path: Path, ranks: int) -> None:
    done = run_example("uneven_batch.py", tmp_path, "--ranks", str(ranks))
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


@pytest.mark.parametrize("rows", [0, 1, 13, 200])
def test_the_tensor_parallel_one_equals_one_process(tmp_path: Path, rows: int) -> None:
    done = run_example("tensor_parallel_linear.py", tmp_path, "--rows", str(rows))
    assert (done.returncode, done.stderr) == (0, "")
    *_, verdict = done.stdout.splitlines()
    assert verdict == "equal to one process doing it all"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_one_of_experts_equals_one_process(tmp_path: Path, ranks: int) -> None:
    sizes = "--ranks", str(ranks), "--tokens", "40", "--rounds", "1"
    done = run_example("moe_layer.py", tmp_path, *sizes)
    assert (done.returncode, done.stderr) == (0, "")
    _, _, *rows, verdict = done.stdout.splitlines()
    assert [row.split()[0] for row in rows] == list(moe_layer.WAYS)
    assert verdict == "equal to one process doing it all"
    assert list(tmp_path.iterdir()) == []


def test_one_wrong_element_of_the_experts_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    expected = moe_layer.whole_layer(moe_layer.make_problem(2, 5))
    results = [{"gather": moe_layer.Way(y.copy(), 1, 0.0)} for y in expected]
    assert moe_layer.report(results, expected)
    results[1]["gather"].y[2, 7] += 1
    assert not moe_layer.report(results, expected)
    assert capsys.readouterr().out.endswith("NOT equal to one process doing it all\n")


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("uneven_batch.py", ["--rank", "4"], "--rank 4"),
        ("uneven_batch.py", ["--ranks", "four"], "--ranks: invalid int value: 'four'"),
        ("uneven_batch.py", ["--ranks", "0"], "--ranks: must be from 1 to 64, got 0"),
        ("uneven_batch.py", ["--ranks", "65"], "--ranks: must be from 1 to 64, got 65"),
        ("uneven_batch.py", ["--ranks"], "--ranks: expected one argument"),
        ("tensor_parallel_linear.py", ["--rows", "-1"], "--rows: must be from 0 to 100000"),
        ("moe_layer.py", ["--tokens", "-1"], "--tokens: must be from 0 to 100000"),
        ("moe_layer.py", ["--ranks", "3"], "--ranks: invalid choice: 3"),
    ],
)
def test_a_wrong_argument_is_one_line(
    tmp_path: Path, name: str, arguments: list[str], words: str
) -> None:
    done = run_example(name, tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"{name}: ") and words in line


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


def test_one_wrong_element_of_the_tensor_parallel_one_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = tensor_parallel_linear.whole_mlp(tensor_parallel_linear.make_problem(13))
    results = [part.copy() for part in expected]
    assert tensor_parallel_linear.report(results, expected)
    results[2][3, 31] += 1
    assert not tensor_parallel_linear.report(results, expected)
    assert capsys.readouterr().out.endswith("NOT equal to one process doing it all\n")
