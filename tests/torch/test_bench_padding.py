"""``collops bench padding``: padded batches beside uneven ones, its table, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import programs
from tests.unit.bench.benches import bench, rows_of

pytest.importorskip("torch")

from collops.bench.operators.padding import GLOO, PADDED, UNEVEN, points_of, ratios, row_of
from collops.cli import main


def test_every_batch_is_measured_in_all_ways(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    words = "padding --ranks 3 --tokens 1,5 --skew 1:1,4:1 --hidden 6 --iterations 1 --json"
    done = bench(*words.split(), str(file))
    assert (done.returncode, done.stderr) == (0, "")
    rows = rows_of(file)
    batches = [(row["what"], row["sizes"]) for row in rows]
    sizes = [[1, 1, 1], [5, 5, 5], [5, 1, 1]]
    assert batches == [(what, size) for what in ("calls", "layer") for size in sizes]
    for row in rows:
        assert (row["ranks"], row["rounds"], row["equal"]) == (3, 1, True)
        assert min(row["gloo_us"], row["padded_us"], row["uneven_us"]) > 0
    assert "| 3 ranks, padded on gloo / uneven: tokens of rank 0 |" in done.stdout


def test_other_ranks_have_tokens_in_every_batch() -> None:
    points = points_of((2,), (1, 8), ((1, 1), (4, 1), (16, 1)), 64)
    assert {point.sizes for point in points} == {(1, 1), (8, 8), (8, 2)}


def test_the_ratios_of_a_row() -> None:
    seconds = {GLOO: [44e-6, 24e-6, 43e-6], PADDED: [2e-6, 9e-6, 4e-6], UNEVEN: [2e-6] * 3}
    record = {"record": "point", "ranks": 2, "tokens": 8, "skew": "4:1", "equal": True}
    row = row_of({**record, "what": "calls", "seconds": seconds})
    assert (row["gloo_us"], row["padded_us"], row["uneven_us"]) == (24.0, 4.0, 2.0)
    assert (row["padded_ratio"], row["gloo_ratio"]) == (2.0, 12.0)
    other = {**row, "what": "layer", "padded_ratio": 1.5, "skew": "1:1"}
    assert ratios([row, {**row, "what": "layer", "padded_ratio": 1.25}, other]).splitlines() == [
        "| 2 ranks, padded on collops / uneven: tokens of rank 0 |        4:1 |  1:1 |",
        "| ----------------------------------------------------- | ---------: | ---: |",
        "| 8                                                     | 2.00, 1.25 | 1.50 |",
        "",
        "| 2 ranks, padded on gloo / uneven: tokens of rank 0 |    4:1 | 1:1 |",
        "| -------------------------------------------------- | -----: | --: |",
        "| 8                                                  | 12, 12 |  12 |",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--skew 1:4", "two numbers as 4:1 are needed, got '1:4'"),
        ("--skew even", "a whole number of 1 or more is needed, got 'even'"),
        ("--ranks 1", "--ranks 1: 2 or more are needed"),
        ("--ranks 3", "--ranks 3: 2 or more are needed, by which the MLP's 2048 hidden units"),
        ("--tokens 1 --skew 2:1", "give more --tokens"),
    ],
)
def test_a_wrong_number_is_one_line(arguments: str, words: str) -> None:
    done = programs.run_forked(main, ["bench", "padding", *arguments.split()])
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("collops bench padding: ")
    assert words in line
