"""bench/gpu_first_run: the questions, their limits, the report, the goals and the tables."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import goals
import pytest
from questions import HERE, Setting, questions

from collops.bench.operators import load
from collops.bench.options import parse
from patience import patience
from report import Question, Report

PYTHON = sys.executable


def asked(file: Path) -> dict[str, Any]:
    return {question["name"]: question for question in json.loads(file.read_text())["questions"]}


def test_what_ran_and_what_did_not_is_in_the_report(tmp_path: Path) -> None:
    file, rows = tmp_path / "report.json", tmp_path / "rows.jsonl"
    row = {"ranks": 2, "simulated": True, "bench": "x", "column": "plain", "backend": "cuda"}
    rows.write_text(json.dumps(row) + "\n{cut off")
    report = Report(file, 300, "test", goals.judged)
    told = {"kernels": "old"}
    good = Question("good", [PYTHON, "-c", "print('said')"], 30, rows=rows, told=told)
    assert report.ask(good)
    assert report.ask(Question("lines", [PYTHON, "-c", "print('no\\n{\"us\": 1}')"], 30))
    assert not report.ask(Question("bad", [PYTHON, "-c", "raise SystemExit(3)"], 30))
    assert not report.ask(Question("none", [PYTHON, "-c", "raise SystemExit(5)"], 30, tests=True))
    assert not report.ask(Question("absent", ["sanitizer"], 30, "it is not installed"))
    found = asked(file)
    assert (found["good"]["state"], found["good"]["rows"]) == ("passed", [row | told])
    assert "said" in found["good"]["output"]
    assert found["lines"]["rows"] == [{"us": 1}]
    assert (found["bad"]["state"], found["bad"]["reason"]) == ("failed", "status 3")
    whole = json.loads(file.read_text())
    assert whole["not_run"] == {"absent": "it is not installed", "none": "no test was selected"}
    assert whole["simulated"] is True
    assert {goal["reached"] for goal in whole["goals"]} == {None}
    late = Report(file, 0, "test", goals.judged)
    assert not late.ask(good)
    assert json.loads(file.read_text())["not_run"] == {"good": "no time was left"}


def test_one_that_hangs_ends_with_its_children_and_shows_where(tmp_path: Path) -> None:
    child = tmp_path / "child.txt"
    hangs = "import time\ndef waits_for_a_peer():\n    time.sleep(300)\nwaits_for_a_peer()\n"
    program = (
        "import subprocess, sys, pathlib, time\n"
        f"p = subprocess.Popen([sys.executable, '-c', {hangs!r}], start_new_session=True)\n"
        f"pathlib.Path({str(child)!r}).write_text(str(p.pid))\n"
        "time.sleep(300)\n"
    )
    report = Report(tmp_path / "report.json", 300, "test", goals.judged)
    begin = time.monotonic()
    assert not report.ask(Question("long", [PYTHON, "-c", program], patience(4)))
    assert time.monotonic() - begin < patience(60)
    found = asked(tmp_path / "report.json")["long"]
    assert "did not end within" in found["reason"]
    status = Path(f"/proc/{child.read_text()}/status")
    until = time.monotonic() + patience(20)
    while status.exists() and "zombie" not in status.read_text():
        assert time.monotonic() < until, "a child still runs"
        time.sleep(0.05)
    assert "in waits_for_a_peer" in found["output"]
    assert f"pid {child.read_text()}: 1 x python" in found["output"]


def test_every_benchmark_is_one_that_the_command_takes(tmp_path: Path) -> None:
    kernels = {"old": tmp_path / "old.fatbin"}
    made = questions(Setting(PYTHON, tmp_path, None, kernels, {"A": "b"}, short=False))
    assert len({question.name for question in made}) == len(made)
    assert all(question.env["A"] == "b" for question in made)
    benches = [question for question in made if question.rows is not None]
    assert len({question.rows for question in benches}) == len(benches)
    for question in benches:
        words = question.words[question.words.index("bench") + 1 : -2]
        options = parse(load(words[0]), words[1:])
        options.launched = 0
        assert load(words[0]).points(options)
    old = next(question for question in benches if "old" in question.name)
    assert old.told == {"kernels": "old"}
    programs = [Path(word) for question in made for word in question.words if str(HERE) in word]
    assert programs
    assert all(program.is_file() for program in programs)


def row(bench: str, column: str, ms: float, **given: Any) -> dict[str, Any]:
    common = {"ranks": 8, "bytes": 64 << 20, "skew": "even", "graph": True}
    return {**common, "simulated": False, "backend": "cuda", "bench": bench, "column": column,
            "ms": ms, **given}  # fmt: skip


def measured() -> list[dict[str, Any]]:
    gather = "all_gather_v"
    product = {"m": 1024, "type": 2, "bytes": None, "skew": None}
    return [
        row(gather, "plain", 0.2),
        row(gather, "limit", 0.15),
        row(gather, "nccl", 0.7),
        row(gather, "plain", 0.22, skew="3:1"),
        row(gather, "plain", 0.005, bytes=1 << 10, ranks=2),
        row(gather, "nccl", 0.004, bytes=1 << 10, ranks=2),
        row(gather, "plain", 0.3, kernels="old"),
        row("linear_parallel", "fused", 1.2, **product),
        row("linear_parallel", "gemm", 1.0, **product),
        row("linear_parallel", "fused", 9.0, **{**product, "ranks": 4}),
        row("all_gather_v", "plain", 9.0, backend="shm"),
        {"ceiling": "one read", "writes": 8, "us": 150.0, "gbps": 4000},
    ]


def test_goals_are_judged_by_rows_of_a_gpu() -> None:
    found = {goal["goal"]: (goal["found"], goal["reached"]) for goal in goals.judged(measured())}
    assert found.pop("all_gather_v, 64 MiB: time / copies") == (1.3333, False)
    assert found.pop("all_gather_v, 64 MiB: NCCL / time") == (3.5, True)
    assert found.pop("all_gather_v, 64 MiB: +-50 % skew / even") == (1.1, False)
    assert found.pop("all_gather_v, 1 KiB, 2 ranks, in a graph: us") == (5.0, False)
    assert found.pop("all_gather_v, 2 ranks, any size: time / NCCL") == (1.25, False)
    assert found.pop("all_gather_v, 8 ranks, any size: time / NCCL") == (0.2857, True)
    assert found.pop("linear_parallel type 2, M = 1024: fused / GEMM alone") == (1.2, False)
    assert set(found.values()) == {(None, None)}


def test_a_time_of_a_simulated_gpu_or_without_a_graph_is_none() -> None:
    rows = [row | {"simulated": True} for row in measured()]
    rows += [row | {"graph": False} for row in measured() if row.get("bench") == "all_gather_v"]
    assert {goal["found"] for goal in goals.judged(rows)} == {None}


def test_the_tables_have_a_line_for_each_column() -> None:
    lines = goals.tables(measured()).splitlines()
    assert "| one read, 8 writes | 150.0 | 4000 |" in lines
    at = lines.index("| all_gather_v, 8 ranks, us | 64 MiB |")
    assert lines[at + 2 : at + 6] == [
        "| plain | 200.0 |",
        "| limit | 150.0 |",
        "| nccl | 700.0 |",
        "| kernels old | 300.0 |",
    ]
    assert "| all_gather_v, 2 ranks, us | 1 KiB |" in lines
    assert "| type 2, 8 ranks, M = 1024, graph | 1.200 | - | 1.000 | 1.20 |" in lines


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_the_ceilings_compile(tmp_path: Path) -> None:
    words = ["nvcc", "-arch=sm_90", "-c", "-o", str(tmp_path / "ceilings.o")]
    done = subprocess.run(
        [*words, str(HERE / "ceilings.cu")], capture_output=True, text=True, timeout=patience(60)
    )
    assert done.returncode == 0, done.stderr
