"""`collops bench cpp`: the program of collops and the interleaved run, without an MPI."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from collops.bench import programs, runs
from patience import patience

ROOT = Path(__file__).resolve().parents[3]
WAYS = ("plain", "window", "started", "beside")
CPP = [sys.executable, "-m", "collops", "bench", "cpp"]
LIMIT_S = patience(60)


@pytest.fixture(scope="module")
def program(core_prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of collops, built as `make bench` builds it."""
    if shutil.which(os.environ.get("CXX", "c++")) is None:
        pytest.skip("there is no C++ compiler")
    return programs.build_collops(tmp_path_factory.mktemp("bench"), core_prefix).program


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.mark.parametrize("operator", programs.OPERATORS)
def test_each_call_is_measured_and_right(program: Path, operator: str) -> None:
    shares, ways = "1:2:3", WAYS[: 2 if "send" in operator else 4]
    for dtype in ("f32", "bf16"):
        done = run(program, operator, dtype, "100,1k,64k", shares, "5", "all")
        assert done.returncode == 0, done.stderr
        points = [json.loads(line) for line in done.stdout.splitlines()]
        wanted = [(size, way) for size in (100, 1 << 10, 64 << 10) for way in ways]
        assert [(point["bytes"], point["way"]) for point in points] == wanted
        for point in points:
            named = (point["operator"], point["dtype"], point["shares"], point["iterations"])
            assert named == (operator, dtype, shares, 5)
            least, median, p95 = point["us"]
            assert 0 < least <= median <= p95
            assert point["whole_us"][1] >= median
            assert len(point["flag_us"]) == 2
            assert len(point["cores"]) == shares.count(":") + 1
            assert point["wrong_ranks"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("all_gather f32 1k 3:5 0 all", "unknown OPERATOR"),
        ("all_gather_v f16 1k 3:5 0 all", "DTYPE is f32 or bf16"),
        ("all_gather_v f32 1g 3:5 0 all", "BYTES is"),
        ("all_gather_v f32 8 3:5 0 all", "BYTES is"),
        ("all_gather_v f32 1k 3:0 0 all", "SHARES is"),
        ("all_gather_v f32 1k 3:5 5000 all", "ITERATIONS is"),
        ("all_gather_v f32 1k 3:5 0 native", 'no way "native"'),
        ("all_gather_v f32", "usage"),
    ],
)
def test_wrong_arguments_are_refused(program: Path, words: str, said: str) -> None:
    done = run(program, *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_instructions_are_counted_where_the_machine_does(program: Path) -> None:
    done = run(program, "all_gather_v", "f32", "1k", "3:5", "5", "plain", "count")
    [point] = [json.loads(line) for line in done.stdout.splitlines()]
    assert point["instructions"] == -1 or 100 < point["instructions"] < 1_000_000


def test_a_rank_that_dies_ends_the_others(program: Path) -> None:
    words = [str(program), "all_gather_v", "f32", "16m", "3:5:5", "4096", "plain"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while len(ranks := children(process.pid)) < 3:
        time.sleep(0.01)
    os.kill(ranks[1], signal.SIGKILL)
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 3
    assert "signal 9" in said or "collops: " in said


def test_a_run_without_mpi_writes_its_file(
    program: Path, core_prefix: Path, tmp_path: Path
) -> None:
    """And names what is missing of an MPI that has a launcher alone."""
    mpi = tmp_path / "mpi"
    (mpi / "bin").mkdir(parents=True)
    (mpi / "bin" / "mpiexec").write_text("#!/bin/sh\necho HYDRA build details\n")
    (mpi / "bin" / "mpiexec").chmod(0o755)
    folder = program.parent.parent
    words = ["--quick", "--collops", core_prefix, "--folder", folder, "--mpi", mpi]
    done = run(*CPP, *words, "--before", core_prefix, "--json", tmp_path / "run.json")
    assert done.returncode == 0, done.stderr
    assert "missing: MPICH: there is no mpicxx beside mpiexec" in done.stderr
    assert "### reduce_scatter_v bf16, 2 ranks 3:5" in done.stdout
    text = (tmp_path / "run.json").read_text()
    assert str(tmp_path) not in text
    assert str(ROOT) not in text
    result = json.loads(text)
    names = [peer["name"] for peer in result["peers"]]
    assert names == ["collops before", "collops", "collops before, again"]
    assert "### The build before" in done.stdout
    found = runs.points_of(result)
    points = {(point["operator"], point["way"], point["round"]) for point in found}
    both = ("all_gather_v", "reduce_scatter_v")
    assert points == {(operator, way, 1) for operator in both for way in WAYS}
    assert result["machine"]["cores"] == len(os.sched_getaffinity(0))


CASE = programs.Case("all_reduce:bf16", "1:2:3", "64,1k", 7)


@pytest.mark.parametrize(
    ("text", "points", "problem"),
    [
        (
            'echo \'{"way": "a"}\'; sleep 77 & sleep 77',
            [{"way": "a"}],
            {"status": "ended after 2 s", "output": []},
        ),
        (
            'echo "$@"; echo why >&2; exit 3',
            [],
            {"status": 3, "output": ["all_reduce bf16 64,1k 1:2:3 7 all", "why"]},
        ),
    ],
)
def test_a_launch_that_hangs_or_fails_is_reported(
    text: str, points: list[Any], problem: dict[str, Any], tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    found = programs.launch(programs.Peer("bad", script, ""), CASE, limit_s=2.0)
    assert found == (points, problem)


def test_settings_of_the_caller_do_not_reach_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMPI_MCA_smsc", "xpmem")
    monkeypatch.setenv("COLLOPS_TRACE", "1")
    peer = programs.Peer("one", tmp_path, "", {"MALLOC_MMAP_MAX_": "0"})
    environment = peer.environment(2)
    assert not {"OMPI_MCA_smsc", "COLLOPS_TRACE"} & environment.keys()
    assert environment["MALLOC_MMAP_MAX_"] == "0"


def test_all_peers_measure_a_case_before_the_next_one(tmp_path: Path) -> None:
    three = [programs.Peer(name, tmp_path, "") for name in "abc"]
    planned = list(programs.turns(2, [CASE, CASE], three))
    order = "".join(peer.name for _, _, peer in planned)
    assert [number for number, _, _ in planned] == [1] * 6 + [2] * 6
    assert [order[i : i + 3] for i in range(0, 12, 3)] == ["abc", "bca", "bca", "cab"]


def test_a_run_that_is_interrupted_keeps_its_part(
    program: Path, core_prefix: Path, tmp_path: Path
) -> None:
    words = ["--collops", core_prefix, "--folder", program.parent.parent, "--rounds", "99"]
    words += ["--sizes", "1k", "--json", tmp_path / "run.json"]
    command = [str(word) for word in [*CPP, *words]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while not (line := process.stderr.readline()).startswith("2 of "):
        assert line, "the run has ended"
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    # On a machine whose cores move, a table or all of them are left out.
    assert "f32, 2 ranks 3:5" in said or "points left out" in said
    result = json.loads((tmp_path / "run.json").read_text())
    assert [one["status"] for one in result["failed"]] == ["interrupted"]
    assert 2 <= len(result["launches"]) < 99
