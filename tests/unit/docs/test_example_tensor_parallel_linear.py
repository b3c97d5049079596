"""examples/tensor_parallel_linear.py: equal to one process, and one wrong element is reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from collops.examples import tensor_parallel_linear as example

from tests import programs

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "tensor_parallel_linear.py"


def run_script(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the example as a script, from a folder that has nothing to do with it."""
    return programs.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("rows", [0, 1, 13, 200])
def test_it_equals_one_process(tmp_path: Path, rows: int) -> None:
    done = run_script(tmp_path, "--rows", str(rows))
    assert (done.returncode, done.stderr) == (0, "")
    *_, verdict = done.stdout.splitlines()
    assert verdict == "equal to one process doing it all"
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_argument_is_one_line(tmp_path: Path) -> None:
    done = run_script(tmp_path, "--rows", "-1")
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("tensor_parallel_linear.py: argument --rows: must be from 0 to 100000")


def test_the_parts_differ_between_ranks_and_make_up_the_whole() -> None:
    problem = example.make_problem(13)
    parts = [example.part(problem.x, problem.rows, r % 2, r // 2) for r in range(4)]
    assert {part.shape for part in parts} == {(4, 32), (9, 32)}
    whole = np.block([[parts[0], parts[2]], [parts[1], parts[3]]])
    assert np.array_equal(whole, problem.x)
    assert not np.array_equal(parts[0], parts[2])


def test_one_wrong_element_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    expected = example.whole_mlp(example.make_problem(13))
    results = [part.copy() for part in expected]
    assert example.report(results, expected)
    results[2][3, 31] += 1
    assert not example.report(results, expected)
    assert capsys.readouterr().out.endswith("NOT equal to one process doing it all\n")
