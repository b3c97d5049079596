"""What a benchmark says of itself: progress on a terminal, its plot, a line for an issue."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from collops.bench.operators import load
from collops.bench.options import parse
from collops.cli import main
from patience import patience
from tests import programs


def test_a_terminal_shows_which_point_is_measured() -> None:
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "collops",
        "bench",
        "all_reduce",
        "--quick",
        "--sizes",
        "64,128",
    ]
    done = subprocess.run(
        [*command, "--iterations", "1"],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        timeout=patience(100),
    )
    os.close(theirs)
    drawn = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "] 0/2, " in drawn and "] 1/2, " in drawn
    assert drawn.endswith("\r\x1b[K")


def test_the_plot_s_path_and_a_line_for_an_issue_end_the_output(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "times.png"
    words = ["bench", "barrier", "--quick", "--iterations", "1", "--plot", str(path)]
    done = programs.run_forked(main, words, timeout=patience(100))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert f"plot: {path}" in lines
    assert path.exists()
    assert lines[-1].startswith("For an issue: collops ")
    assert "numpy" in lines[-1]


@pytest.mark.parametrize("load", [0.0, 1e4])
def test_times_of_a_busy_machine_are_marked(
    load: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    ranks = str(len(os.sched_getaffinity(0)) + 1)  # of which no time shows other programs
    words = ["bench", "barrier", "--quick", "--iterations", "1", "--ranks", ranks]
    assert main(words) == 0
    said = capsys.readouterr().out
    warning = "Warning: the cores were shared with other programs (load 10000.0 on "
    assert (warning in said) == bool(load)
    assert said.splitlines()[-1].startswith("For an issue: ")


@pytest.mark.parametrize("words", ["f32,bf16", "float32,bfloat16", "fp32,BF16", "float,bf16,f32"])
def test_a_dtype_may_have_any_of_its_names(words: str) -> None:
    assert parse(load("all_gather_v"), ["--dtype", words]).dtype == ("f32", "bf16")


def test_what_the_extra_installs_is_imported_only_where_it_was_asked_for() -> None:
    modules = ", ".join(
        f"collops.bench.{name}" for name in ("command", "ranks", "tune", "programs")
    )
    text = f"import sys, {modules}; print({{'matplotlib', 'mpi4py', 'torch'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
