"""bench/gpu_first_run in its short form, on simulated GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from patience import patience

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.timeout(300)
def test_the_short_form_runs_and_says_simulated(gpu: Any, tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    command = [sys.executable, str(ROOT / "bench" / "gpu_first_run"), "run", "--short", "--here"]
    command += ["--output", str(output)]
    folder = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": os.pathsep.join([folder, os.environ["PATH"]])}
    env["COLLOPS_SIM_GPUS"] = "1"
    env = {name: value for name, value in env.items() if not name.startswith("COLLOPS_SIM_W")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(280), env=env)
    found = json.loads(output.read_text())
    assert done.returncode == 0, json.dumps(found, indent=1) + done.stdout + done.stderr
    asked = {question["name"]: question for question in found["questions"]}
    assert found["simulated"] is True
    assert {name for name, question in asked.items() if question["state"] == "passed"} >= {
        *("doctor", "conformance", "arrays"),
    }
    rows = asked["all_gather_v of 2"]["rows"]
    assert {row["column"] for row in rows} >= {"plain", "limit", "nccl"}
    assert {row["simulated"] for row in rows} == {True}
    products = asked["products of 2, M = 8"]["rows"]
    assert {(row["backend"], row["graph"]) for row in products} == {("cuda", True)}
    assert {row["wrong_ranks"] for row in products if row["column"] != "gemm"} == {0}
    assert {goal["reached"] for goal in found["goals"]} == {None}  # no time is one of a GPU
    assert all(reason for reason in found["not_run"].values())
