"""bench/many_cores: its questions are known to `collops bench`, and its goals read their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import many_cores
from collops.bench.operators import load
from collops.bench.options import parse


def test_every_question_is_one_that_the_benchmark_knows(tmp_path: Path) -> None:
    asked = list(many_cores.questions("python", tmp_path, "/opt/mpi"))
    assert len(asked) >= 7
    for question in asked:
        name, words = question.words[4], question.words[5:]
        parse(load(name), words)
    # The whole run, with what starting it takes, is one of three minutes.
    assert many_cores.SECONDS <= 180


def product(column: str, ms: float, **place: Any) -> dict[str, Any]:
    return {"bench": "linear_parallel", "ranks": 8, "type": 2, "column": column, "ms": ms} | place


def gather(column: str, ms: float, num_bytes: int, ranks: int = 16) -> dict[str, Any]:
    place = {"bench": "all_gather_v", "ranks": ranks, "bytes": num_bytes}
    return {**place, "column": column, "ms": ms}


def test_goals_are_judged_by_the_rows() -> None:
    rows = [
        product("fused", 2.1),
        product("gemm", 2.0),
        product("torch", 1.0),
        product("gemm", 9.0, ranks=4),
        gather("plain", 1.0, 1 << 10),
        gather("gloo_all_gather", 4.0, 1 << 10),
        gather("gloo_isend_irecv", 3.0, 1 << 10),
        gather("mpi_allgatherv", 1.0, 1 << 10),
        gather("plain", 9.0, 1 << 10, ranks=8),
    ]
    found = {goal["goal"]: (goal["found"], goal["reached"]) for goal in many_cores.judged(rows)}
    assert found["type 2, 8 ranks: fused / product alone"] == (1.05, True)
    assert found["type 2, 8 ranks: product alone / torch.matmul"] == (2.0, False)
    assert found["type 2, 4 ranks: fused / product alone"] == (None, None)
    assert found["all_gather_v, 16 ranks, 1 KiB: time / gloo"] == (0.333, True)
    assert found["all_gather_v, 16 ranks, 1 KiB: time / mpi"] == (1.0, False)
    assert found["reduce_scatter_v, 16 ranks, 1 MiB: time / mpi"] == (None, None)
