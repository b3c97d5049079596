"""bench/gpu_all.sh: the steps, their limits, the file that they write, and the goals."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import gpu_steps
import gpu_targets
from collops.bench.arguments import parse
from collops.bench.operators import load
from gpu_steps import Run, Step
from patience import patience

PYTHON = sys.executable


def steps_of(file: Path) -> dict[str, Any]:
    return {step["name"]: step for step in json.loads(file.read_text())["steps"]}


def test_what_ran_and_what_did_not_is_in_the_file(tmp_path: Path) -> None:
    file, rows = tmp_path / "all.json", tmp_path / "rows.jsonl"
    row = {"ranks": 2, "simulated": True, "bench": "x", "column": "plain"}
    rows.write_text(json.dumps(row) + "\n")
    run = Run(file)
    assert run.step(Step("good", [PYTHON, "-c", "print('said')"], 30, rows=rows))
    assert not run.step(Step("bad", [PYTHON, "-c", "raise SystemExit(3)"], 30))
    assert not run.step(Step("none", [PYTHON, "-c", "raise SystemExit(5)"], 30, tests=True))
    assert not run.step(Step("absent", ["sanitizer"], 30, "it is not installed"))
    told = steps_of(file)
    assert (told["good"]["state"], told["good"]["rows"]) == ("passed", [row])
    assert "said" in told["good"]["output"]
    assert (told["bad"]["state"], told["bad"]["reason"]) == ("failed", "status 3")
    assert told["absent"]["state"] == "not run"
    whole = json.loads(file.read_text())
    assert whole["not_run"] == {"absent": "it is not installed", "none": "no test was selected"}
    assert whole["simulated"] is True
    assert {goal["reached"] for goal in whole["targets"]} == {None}


def test_a_step_ends_with_its_children_when_its_time_is_up(tmp_path: Path) -> None:
    child = tmp_path / "child.txt"
    program = (
        "import subprocess, sys, pathlib, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])\n"
        f"pathlib.Path({str(child)!r}).write_text(str(p.pid))\n"
        "time.sleep(300)\n"
    )
    run = Run(tmp_path / "all.json")
    begin = time.monotonic()
    assert not run.step(Step("long", [PYTHON, "-c", program], 5))
    assert time.monotonic() - begin < patience(60)
    assert steps_of(tmp_path / "all.json")["long"]["reason"] == "did not end within 5 s"
    if child.exists():  # a slow machine may not have come to it
        status = Path(f"/proc/{child.read_text()}/status")
        until = time.monotonic() + patience(20)
        while status.exists() and "zombie" not in status.read_text():
            assert time.monotonic() < until, "a child still runs"
            time.sleep(0.05)


def test_without_time_a_step_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_steps, "ALL_S", 0.0)
    run = Run(tmp_path / "all.json")
    assert not run.step(Step("late", [PYTHON, "-c", "raise SystemExit(3)"], 30))
    assert json.loads((tmp_path / "all.json").read_text())["not_run"] == {
        "late": "no time was left"
    }


@pytest.mark.parametrize("short", [False, True])
def test_every_benchmark_is_one_that_the_command_takes(tmp_path: Path, short: bool) -> None:
    made = gpu_steps.steps(PYTHON, tmp_path, short=short)
    benches = [step for step in made if "bench" in step.words]
    assert len(benches) >= 6
    for step in benches:
        words = step.words[step.words.index("bench") + 1 :]
        options = parse(load(words[0]), words[1:])
        options.launched = 0
        points = load(words[0]).points(options)
        assert points
        assert {point.ranks for point in points} == {2 if short or "check" in step.name else 8}
    limits = sum(step.limit_s for step in made)
    assert limits < 700  # what runs over is cut at ALL_S, and said


def rows_of(bench: str, plain: float, **times: float) -> list[dict[str, Any]]:
    common = {"ranks": 8, "bench": bench, "bytes": 64 << 20, "skew": "even", "graph": True}
    common["simulated"] = False
    return [{**common, "column": name, "ms": ms} for name, ms in {"plain": plain, **times}.items()]


def test_goals_are_judged_by_rows_of_eight_ranks() -> None:
    rows = rows_of("all_gather_v", 0.2, limit=0.15, nccl=0.3)
    rows += [{**rows[0], "skew": "3:1", "ms": 0.22}, {**rows[0], "bytes": 1 << 10, "ms": 0.005}]
    rows += [{**row, "ranks": 4, "ms": 9.0} for row in rows]
    product = {"ranks": 8, "bench": "linear_parallel", "m": 1024, "type": 2, "simulated": False}
    rows += [{**product, "column": "fused", "ms": 1.2}, {**product, "column": "gemm", "ms": 1.0}]
    found = {row["goal"]: (row["found"], row["reached"]) for row in gpu_targets.judged(rows)}
    assert found.pop("all_gather_v, 64 MiB: copy ceiling / time") == (0.75, False)
    assert found.pop("all_gather_v, 64 MiB: grouped NCCL / time") == (1.5, True)
    assert found.pop("all_gather_v, 64 MiB: +-50 % skew / even") == (1.1, False)
    assert found.pop("all_gather_v, 1 KiB in a graph: us") == (5.0, True)
    assert found.pop("linear_parallel type 2, M = 1024: fused / GEMM alone") == (1.2, False)
    assert len(found) == 6
    assert set(found.values()) == {(None, None)}


def test_a_time_of_a_simulated_gpu_is_none() -> None:
    rows = [row | {"simulated": True} for row in rows_of("all_gather_v", 0.2, limit=0.15)]
    assert {goal["found"] for goal in gpu_targets.judged(rows)} == {None}


def test_a_time_without_a_graph_is_none_of_a_graph() -> None:
    [row] = rows_of("all_gather_v", 0.001)
    row |= {"bytes": 1 << 10, "graph": False}
    found = {goal["goal"]: goal["found"] for goal in gpu_targets.judged([row])}
    assert found["all_gather_v, 1 KiB in a graph: us"] is None
