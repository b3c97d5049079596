"""python -m collops.demo: everything equals golden, and one changed element is found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import collops
from collops.cli import main
from collops.demo.runs import Outcome
from tests import programs

OPERATORS = [
    "transformer layer",
    "2 x 2 tensor-parallel MLP",
    "all_gatherv",
    "reduce_scatterv",
    "AllGatherV",
    "ReduceScatterV",
]
FINDING = "  AllGatherV, rank 1, index [1, 1]: got 3.0, expected 2.0"


def run_demo(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the demo from a folder that has nothing to do with it."""
    return programs.run(
        [sys.executable, "-m", "collops.demo", *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )


def columns(lines: list[str]) -> list[list[str]]:
    """The cells of a table, cut at the columns of its line of dashes."""
    rule = next(line for line in lines if set(line) == {"-", " "})
    starts = [i for i, sign in enumerate(rule) if sign == "-" and (i == 0 or rule[i - 1] == " ")]
    ends = [start + len(rule[start:].split(" ")[0]) for start in starts]
    rows = [line for line in lines if line != rule and not line.startswith("  ")]
    return [[row[a:b].strip() for a, b in zip(starts, ends, strict=True)] for row in rows]


def test_every_result_equals_golden(tmp_path: Path) -> None:
    done = run_demo(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    _, *lines, verdict = done.stdout.splitlines()
    head, *rows = columns(lines)
    assert head == ["operator", "ranks", "shapes", "equal to golden", "time (us)"]
    assert [row[0] for row in rows] == OPERATORS
    assert [row[1] for row in rows] == ["4", "4", "4", "4", "2", "2"]
    assert [row[3] for row in rows] == ["yes, in bound", *["yes, every bit"] * 5]
    assert all(int(row[4].replace(",", "")) > 0 for row in rows)
    assert "[2, 4] [3, 4] -> [5, 4]" in rows[4][2]
    assert verdict == "all equal to golden"
    assert list(tmp_path.iterdir()) == []


def test_a_changed_element_is_found(tmp_path: Path) -> None:
    done = run_demo(tmp_path, "--break")
    assert (done.returncode, done.stderr) == (1, "")
    _, planted, *lines, verdict = done.stdout.splitlines()
    assert planted == "--break: changed one element of the AllGatherV result of rank 1"
    assert [line for line in lines if line.startswith("  ")] == [FINDING]
    _, *rows = columns(lines)
    assert [row[0] for row in rows if row[3] == "NO"] == ["AllGatherV"]
    assert lines[lines.index(FINDING) - 1].startswith("AllGatherV ")
    assert verdict == "1 result differs"


@pytest.mark.parametrize("argument", ["--brake", "--bre", "all"])
def test_a_wrong_argument_is_one_line(tmp_path: Path, argument: str) -> None:
    done = run_demo(tmp_path, argument)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("python -m collops.demo: ")
    assert argument in line


def test_the_name_that_was_used_is_shown(tmp_path: Path) -> None:
    assert run_demo(tmp_path, "--help").stdout.startswith("usage: python -m collops.demo ")
    done = programs.run_forked(main, ["demo", "--help"])
    assert done.stdout.startswith("usage: collops demo ")
    assert programs.run_forked(main, ["demo", "--brake"]).stderr.startswith("collops demo: ")


def test_without_a_core_the_error_is_one_line(tmp_path: Path) -> None:
    shutil.copytree(
        Path(collops.__path__[0]),
        tmp_path / "collops",
        ignore=shutil.ignore_patterns("_core.*", "__pycache__"),
    )
    done = run_demo(tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("python -m collops.demo: collops cannot load its C++ core: ")
    assert line.endswith("[ERROR_UNSUPPORTED]")


def outcome(**fields: object) -> Outcome:
    """Two ranks with right results."""
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3) + rank for rank in range(2)]
    settings = {"results": [array.copy() for array in arrays], "expected": arrays, **fields}
    return Outcome(operator="Op", shapes="[2, 3]", seconds=1.5e-6, **settings)  # type: ignore[arg-type]


def test_every_rank_is_looked_at_and_counted() -> None:
    run = outcome()
    run.results[0][1, 2] = 9
    run.results[1][0, 1:] = np.nan
    assert run.findings() == [
        "Op, rank 0, index [1, 2]: got 9.0, expected 5.0",
        "Op, rank 1, index [0, 1]: got nan, expected 2.0, and 1 more",
    ]
    assert run.verdict() == "NO"


def test_a_wrong_shape_is_found() -> None:
    run = outcome()
    run.results[1] = run.results[1][:1]
    assert run.findings() == ["Op, rank 1, shape: got [1, 3], expected [2, 3]"]


@pytest.mark.parametrize(("error", "found"), [(0.125, 0), (0.25, 1), (np.nan, 1), (np.inf, 1)])
def test_a_bound_is_kept(error: float, found: int) -> None:
    run = outcome(bounds=[np.full((2, 3), 0.125)] * 2)
    assert run.verdict() == "yes, in bound"
    run.results[1][1, 1] += np.float32(error)
    assert len(run.findings()) == found
