"""``collops bench torch``: its table, JSON and plot, and what it refuses."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest

from tests import programs
from tests.unit.bench.benches import bench, rows_of

pytest.importorskip("torch")

from collops.bench import command
from collops.bench.operators.torch_calls import (
    CALLS,
    FUNCTIONAL,
    SEQUENCES,
    TRAINING,
    WAYS,
    cells,
    gpt_bytes,
    points_of,
    row_of,
    tenth,
)
from collops.bench.torch.training import Gpt
from collops.cli import main


def test_every_call_runs_in_every_way(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    done = bench("torch", "--sizes", "1000", "--iterations", "1", "--json", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    rows = rows_of(file)
    points = [
        (point.call, point.way, point.size) for point in points_of(2, (*CALLS,), WAYS, (1000,))
    ]
    assert [(row["call"], row["way"], row["bytes"]) for row in rows] == points
    assert {call for call, way, _ in points if way == "functional"} == {*FUNCTIONAL}
    for row in rows:
        assert (row["ranks"], row["rounds"], row["equal"]) == (2, 1, True)
        assert row["ratio"] == pytest.approx(row["gloo_us"] / row["collops_us"], abs=1e-2)
    trained = [row for row in rows if row["call"] in TRAINING]
    assert [(row["call"], row["way"]) for row in trained] == [*product(TRAINING, SEQUENCES)]
    assert all(row["alone_us"] > 0 and 0 <= row["gloo_share"] < 1 for row in trained)
    printed = (line for line in done.stdout.splitlines() if not line.startswith("Warning: "))
    *whole, mpi, issue = filter(None, printed)
    assert mpi.startswith("MPI: ")
    assert issue.startswith("For an issue: collops bench torch ")
    head, _, *lines = whole
    assert [cell.strip() for cell in head.strip("|").split("|")][3:5] == ["collops us", "gloo us"]
    assert [line.split()[1] for line in lines] == [call for call, _, _ in points]
    shares = [line.split("|")[7].strip() for line in lines]
    assert shares == [
        f"{row['collops_share']:.0%}" if row["call"] in TRAINING else "-" for row in rows
    ]


def test_the_bytes_are_those_of_the_parameters() -> None:
    assert sum(part.nbytes for part in Gpt().parameters()) == gpt_bytes()


def test_a_plot_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = "torch --calls all_reduce,barrier --quick --iterations 1 --plot".split()
    done = bench(*words, str(tmp_path / "a.png"))
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--calls all_reduce,all_scatter", "'all_scatter' is not one of all_reduce, broadcast"),
        ("--ways later", "'later' is not one of sync, async, functional"),
        ("--sizes 64,big", "a whole number of 1 or more is needed, got 'big'"),
        ("--calls barrier --ways functional", "torch has no functional form of barrier"),
    ],
)
def test_a_wrong_name_is_one_line(arguments: str, words: str) -> None:
    done = programs.run_forked(main, ["bench", "torch", *arguments.split()])
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("collops bench torch: ")
    assert words in line


def test_shared_cores_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (10_000.0, 0.0, 0.0))
    assert command.main("torch", ["--calls", "barrier", "--ways", "sync", "--iterations", "1"]) == 0
    warning = "Warning: the cores were shared with other programs (load 10000.0 on "
    assert warning in capsys.readouterr().out


def test_the_times_of_a_row() -> None:
    seconds = [number * 1e-6 for number in range(20, 31)]
    assert tenth(seconds) == 21e-6
    record = {"call": "all_reduce", "collops_s": [1e-6, 9e-6, 2e-6], "gloo_s": seconds}
    row = row_of(record)
    assert (row["collops_us"], row["gloo_us"], row["gloo_median_us"]) == (2.0, 21.0, 25.0)
    assert row["ratio"] == 10.5
    assert "gloo_s" not in row
    assert (
        "alone_us" not in row and cells({**row, "way": "sync", "bytes": 0, "equal": True})[6] == "-"
    )


def test_the_share_of_communication() -> None:
    record = {"call": "ddp", "collops_s": [8e-6], "gloo_s": [4e-6], "alone_s": [6e-6]}
    row = row_of(record)
    assert (row["alone_us"], row["collops_share"], row["gloo_share"]) == (6.0, 0.25, 0.0)
