"""`collops tune`: runs, what is printed and written, refusals, failures."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collops.bench import tune as command
from collops.bench.command import disturbed
from collops.bench.launch import RanksFailedError
from collops.bench.operators import load
from collops.bench.peers.mpi_launcher import Mpi
from collops.cli import main
from collops.core import core, usable_cores
from tests import programs

ROW = re.compile(r"\| +(\d) \| +(\w+) \| +([\d.]+) \| +([\d.]+) \| +([12]) steps? by ([\d.]+) \|")
SIZES = "import collops.core, json; print(json.dumps(collops.core.core().tuned_sizes()))"


def test_a_quick_run_prints_a_line_that_a_shell_can_export(tmp_path: Path) -> None:
    path = tmp_path / "tuning.sh"
    words = [sys.executable, "-m", "collops", "tune", "--quick", "--output", str(path)]
    done = programs.run(words, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    rows = [match.groups() for line in lines if (match := ROW.fullmatch(line))]
    assert [(ranks, size) for ranks, size, *_ in rows] == [
        (ranks, size) for ranks in "24" for size in ("16k", "64k", "256k", "1m")
    ]
    for _, _, one, two, faster, ratio in rows:
        assert faster == ("1" if float(one) < float(two) else "2")
        times = sorted([float(one), float(two)])
        assert float(ratio) == pytest.approx(times[1] / times[0], rel=0.02)
    line = r"COLLOPS_TUNING=all_reduce_one_step_2=(\d+[km]?),all_reduce_one_step=(\d+[km]?)"
    assert re.fullmatch(line, lines[-1])
    assert path.read_text().splitlines()[-1] == f"export {lines[-1]}"
    shell = programs.run(
        ["sh", "-c", f". '{path}' && exec '{sys.executable}' -c '{SIZES}'"], capture_output=True
    )
    found = {name: now for name, _, now, _ in json.loads(shell.stdout)}
    text = dict(pair.split("=") for pair in lines[-1].partition("=")[2].split(","))
    units = {"k": 1 << 10, "m": 1 << 20}
    for name, size in text.items():
        assert found[name] == int(size.rstrip("km")) * units.get(size[-1], 1)


@pytest.fixture(autouse=True)
def _idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))


def planted(crossings: dict[int, int], differ: bool = False, spread: float = 1.5) -> Any:
    """In place of launch(): one step is faster up to these sizes."""

    def launch(request: Any, ranks: int, *_: Any, **__: Any) -> Iterator[dict[str, Any]]:
        for point in request.points:
            assert point.ranks == ranks
            both = (2.0, 3.0) if point.size <= crossings[ranks] else (3.0, 2.0)
            ways = [
                {"column": key, "ms": us / 1e3, "ms_min": 1.0, "ms_p95": spread}
                for key, us in zip(request.own, both, strict=True)
            ]
            ways[0]["wrong_ranks"] = int(differ)
            ways[1]["wrong_ranks"] = 0
            yield {"ranks": ranks, "bytes": point.size, "columns": ways}

    return launch


@pytest.mark.parametrize(
    ("ranks", "env", "expected"),
    [
        ("2,4", "", "all_reduce_one_step_2=512k,all_reduce_one_step=16k"),
        ("2", "", "all_reduce_one_step_2=512k"),
        ("3,4", "", "all_reduce_one_step=16k"),
        # What is set already and was not measured stays set; the line replaces the variable.
        ("4", "streamed_output=3m", "all_reduce_one_step=16k,streamed_output=3m"),
        (
            "4",
            "all_reduce_one_step_2=1k,all_reduce_one_step=4m",
            "all_reduce_one_step_2=1k,all_reduce_one_step=16k",
        ),
        ("5", "", "all_reduce_one_step=0"),
        ("6", "", "all_reduce_one_step=4m"),
    ],
)
def test_the_line_has_the_crossings(
    ranks: str,
    env: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLLOPS_TUNING", env)
    crossings = {2: 512 << 10, 3: 16 << 10, 4: 16 << 10, 5: 0, 6: 1 << 30}
    monkeypatch.setattr(command, "launch", planted(crossings))
    assert command.main(["--ranks", ranks]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == f"COLLOPS_TUNING={expected}"
    assert shown.err == ""
    monkeypatch.setenv("COLLOPS_TUNING", expected)
    now = {name: size for name, _, size, _ in core().tuned_sizes()}
    sizes = dict(pair.split("=") for pair in expected.split(","))
    assert {name: command.size_text(now[name]) for name in sizes} == sizes
    assert ("share" in shown.out) == (max(map(int, ranks.split(","))) > usable_cores()[0])


@pytest.mark.parametrize(
    ("load", "spread", "warning"),
    [
        (0.0, 1.5, ""),
        (12.0, 1.5, "the cores were shared with other programs (load 12.0 on 2 cores)"),
        (1.0, 9.0, "the slowest calls took more than 5 times as long as the fastest (load 1.0 "),
    ],
)
def test_times_of_a_busy_machine_are_marked(
    load: float,
    spread: float,
    warning: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(core(), "cores", lambda: (2, ""))
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(command, "launch", planted({2: 0}, spread=spread))
    path = tmp_path / "tuning.sh"
    assert command.main(["--ranks", "2", "--output", str(path)]) == 0
    said = capsys.readouterr().out
    assert ("Warning: " in said) == bool(warning)
    assert warning in said
    *comments, line = path.read_text().splitlines()
    assert line == f"export {said.splitlines()[-1]}"
    assert len(comments) == bool(warning)
    assert all(text.startswith("# ") and warning in text for text in comments)


def test_ranks_beyond_a_cpu_quota_share_cores(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(core(), "cores", lambda: (1, "/sys/fs/cgroup/job"))
    monkeypatch.setattr(command, "launch", planted({2: 0}, spread=9.0))
    assert command.main(["--ranks", "2"]) == 0
    said = capsys.readouterr().out
    assert "Note: 2 ranks share 1 core(s)" in said
    assert "Warning: " not in said  # which would blame other programs
    rows = [[{"ranks": ranks, "ms_p95": 9.0, "ms_min": 1.0} for ranks in (2, 3)]]
    assert disturbed(load("all_reduce"), rows, 0.0) == ""
    mpi = Mpi("Open MPI", "mpirun", {})
    assert [bool(mpi.variables(ranks)) for ranks in (1, 2)] == [False, True]


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("collops.terminal._EVERY_S", 0.0)
    monkeypatch.setattr(command, "launch", planted({2: 0, 3: 0}))
    assert command.main(["--quick", "--ranks", "2,3,2"]) == 0
    lines = [text for text in terminal.getvalue().replace("\x1b[K", "").split("\r") if text]
    drawn = [line.partition("] ")[2] for line in lines]
    wanted = [f"{ranks} ranks, {size}" for ranks in (2, 3) for size in ("16k", "64k", "256k", "1m")]
    assert list(dict.fromkeys(drawn)) == [f"{i}/8, {text}" for i, text in enumerate(wanted)]
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert capsys.readouterr().out.count("2 steps by 1.50") == 8


def test_results_that_differ_and_ranks_that_fail_are_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "launch", planted({2: 0}, differ=True))
    assert command.main(["--ranks", "2"]) == 1
    shown = capsys.readouterr()
    assert "2 ranks, 1k: a result is wrong" in shown.err
    assert "COLLOPS_TUNING" not in shown.out

    def fail(*_: Any, **__: Any) -> Iterator[dict[str, Any]]:
        raise RanksFailedError("rank 1 is gone")
        yield {}

    monkeypatch.setattr(command, "launch", fail)
    assert command.main(["--ranks", "2"]) == 1
    assert capsys.readouterr().err == "collops tune: the ranks failed:\nrank 1 is gone\n"


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        ("--ranks 1", {}, "--ranks 1: at least 2 are needed"),
        ("--ranks 2,x", {}, "--ranks: a whole number of 1 or more is needed, got 'x'"),
        ("--sizes 1k", {}, "unrecognized arguments: --sizes 1k"),
        ("--output /nowhere/tuning.sh", {}, "/nowhere/tuning.sh"),
        ("--quick", {"COLLOPS_TUNING": "chunk=1"}, '"chunk" is unknown; the sizes are'),
        (
            "--quick",
            {"COLLOPS_NUM_THREADS": "0"},
            "COLLOPS_NUM_THREADS must be a whole number of 1",
        ),
    ],
)
def test_a_wrong_value_is_one_clear_line(arguments: str, env: dict[str, str], message: str) -> None:
    done = programs.run_forked(main, ["tune", *arguments.split()], env=env)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("collops tune: ")
    assert done.stderr.count("\n") == 1


def test_only_the_two_ways_are_measured_and_for_a_limited_time() -> None:
    request = command._request(2, (16 << 10, 64 << 10), 5)
    assert (request.own, request.alone) == (("1 step plain", "2 steps plain"), True)
    assert request.most_s == 1.0


def test_the_command_is_listed() -> None:
    done = programs.run_forked(main, ["--help"])
    assert re.search(r"^ +tune +measure ", done.stdout, re.MULTILINE)
    done = programs.run_forked(main, ["tune", "--help"])
    assert done.returncode == 0
    for word in ("--ranks 2,4", "--output FILE", "--quick", "Exit status"):
        assert word in done.stdout


def test_ctrl_c_is_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Iterator[dict[str, Any]]:
        raise KeyboardInterrupt
        yield {}

    monkeypatch.setattr(command, "launch", interrupted)
    assert command.main(["--ranks", "2"]) == 130
