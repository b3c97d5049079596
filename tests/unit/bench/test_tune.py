"""`collops tune`: runs, what is printed and written, failures; the size that it chooses."""

from __future__ import annotations

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
from collops.bench.tune import Timed, choose
from collops.cli import main
from collops.core import core, usable_cores
from tests import programs

ROW = re.compile(r"\| +(\d) \| +(\w+) \| +([\d.]+) \| +([\d.]+) \| +([12]) steps? by ([\d.]+) \|")
TABLE = "import collops.core, json; print(json.dumps(collops.core.core().tuned_sizes()))"


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
        ["sh", "-c", f". '{path}' && exec '{sys.executable}' -c '{TABLE}'"], capture_output=True
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


def test_results_that_differ_and_ranks_that_fail_are_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "launch", planted({2: 0}, differ=True))
    assert command.main(["--ranks", "2"]) == 1
    shown = capsys.readouterr()
    assert "2 ranks, 1k: a result is wrong" in shown.err
    assert "COLLOPS_TUNING" not in shown.out

    for error, status, said in (
        (RanksFailedError("rank 1 is gone"), 1, "the ranks failed:\nrank 1 is gone"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ):
        monkeypatch.setattr(command, "launch", raising(error))
        assert command.main(["--ranks", "2"]) == status
        assert capsys.readouterr().err == f"collops tune: {said}\n"


def raising(error: BaseException) -> Any:
    def launch(*_: Any, **__: Any) -> Iterator[dict[str, Any]]:
        raise error
        yield {}

    return launch


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        ("--ranks 1", {}, "--ranks 1: at least 2 are needed"),
        ("--output /nowhere/tuning.sh", {}, "/nowhere/tuning.sh"),
        ("--quick", {"COLLOPS_TUNING": "chunk=1"}, '"chunk" is unknown; the sizes are'),
        ("--quick", {"COLLOPS_NUM_THREADS": "0"}, "COLLOPS_NUM_THREADS must be a whole number of"),
    ],
)
def test_a_wrong_value_is_one_clear_line(arguments: str, env: dict[str, str], message: str) -> None:
    done = programs.run_forked(main, ["tune", *arguments.split()], env=env)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("collops tune: ")
    assert done.stderr.count("\n") == 1


SIZES = tuple(1 << bits for bits in range(10, 22))
K = 1 << 10


def table(ratios: list[float], one_us: float = 10.0) -> list[Timed]:
    """Times whose two steps take these multiples of one step, from 1 KiB on."""
    return [
        Timed(size, one_us, one_us * ratio)
        for size, ratio in zip(SIZES[: len(ratios)], ratios, strict=True)
    ]


FASTER, SLOWER = 1.08, 1 / 1.08  # one step against two


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([FASTER] * 4 + [SLOWER] * 4, 8 * K),
        ([1.5, 1.3, 1.1, 1.02, 0.98, 0.9, 0.7], 8 * K),
        ([FASTER] * 8, SIZES[7]),  # always one step, as far as was measured
        ([SLOWER] * 8, 0),  # never one step
        # One size was disturbed, by far: its neighbours outweigh it.
        ([FASTER, FASTER, 0.1, FASTER, FASTER, SLOWER, SLOWER, SLOWER], 16 * K),
        ([FASTER, FASTER, FASTER, SLOWER, SLOWER, SLOWER, 90], 4 * K),
        ([FASTER], K),
    ],
)
def test_the_crossing_is_found(ratios: list[float], expected: int) -> None:
    for now in (0, 1 << 40, expected):
        found = choose(table(ratios), now)
        unmeasured = expected == SIZES[len(ratios) - 1] and now > expected
        assert found == (now if unmeasured else expected)


@pytest.mark.parametrize("now", [0, 300, 2 * K, 3 * K, 1 << 40])
def test_what_nothing_measured_can_improve_stays(now: int) -> None:
    assert choose(table([1.0] * 8), now) == now
    assert choose([], now) == now


@pytest.mark.parametrize(("now", "expected"), [(0, K), (5 * K, 5 * K), (1 << 30, 8 * K)])
def test_of_several_best_sizes_the_nearest_is_taken(now: int, expected: int) -> None:
    assert choose(table([FASTER, 1.0, 1.0, 1.0, SLOWER, SLOWER]), now) == expected


def test_several_numbers_of_ranks_choose_one_size_together() -> None:
    three, four = [FASTER, FASTER, FASTER, SLOWER], [FASTER, 0.97, 0.95, SLOWER]
    assert choose(table(three), 0) == 4 * K
    assert choose(table(four), 0) == K
    assert choose(table(three) + table(four), 0) == choose(table(four) + table(three), 0) == 4 * K
