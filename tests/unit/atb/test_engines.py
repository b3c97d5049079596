"""The engines of LinearParallel as an option of the operation: bits, refusals, trace and doctor."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import collops
from collops import LinearParallelParam, ParallelType
from collops.testing import run_ranks

STRIP = 384


def param_of(rank: int, size: int = 2, **fields: Any) -> LinearParallelParam:
    fields = {"type": ParallelType.LINEAR_ALL_REDUCE, **fields}
    return LinearParallelParam(rank=rank, rank_size=size, backend="shm", **fields)


def numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def results(rank: int, engines: list[str | None]) -> list[tuple[int, bytes]]:
    """Scratch bytes and result of each engine."""
    ins = [numbers(rank, 70, 130), numbers(9 + rank, 2 * STRIP, 130)]
    found = []
    for engine in engines:
        operation = collops.Operation(param_of(rank), engine=engine)
        out = np.full((70, 2 * STRIP), np.nan, np.float32)
        scratch = np.full(operation.get_workspace_size(ins, [out]), 1, np.uint8)
        operation.execute(ins, [out], scratch)
        found.append((scratch.nbytes, out.tobytes()))
    return found


def test_the_option_goes_before_the_environment() -> None:
    engines = [None, "windows", "pipeline"]
    for fused in ("1", "0"):
        for found in run_ranks(results, 2, engines, env={"COLLOPS_FUSED": fused}):
            sizes = [size for size, _ in found]
            assert len({data for _, data in found}) == 1
            assert sizes[1] < sizes[2]  # the pipeline alone keeps tile and sums in the workspace
            assert sizes[0] == sizes[1 if fused == "1" else 2]


def updated(rank: int) -> tuple[int, int]:
    ins = [numbers(rank, 70, 130), numbers(9 + rank, STRIP, 130)]
    operation = collops.Operation(param_of(rank), engine="pipeline")
    out = np.empty((70, STRIP), np.float32)
    before = operation.get_workspace_size(ins, [out])
    operation.update(param_of(rank, comm_domain="other"))
    return before, operation.get_workspace_size(ins, [out])


def test_an_update_keeps_the_engine() -> None:
    before, after = updated(0)
    assert before == after


def program(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env}
    )


@pytest.mark.parametrize(
    ("fused", "named", "engine", "why"),
    [
        ("1", None, "windows", ", not local: a product of 2 ranks needs communication"),
        (
            "1",
            "pipeline",
            "pipeline",
            " as named, not local: a product of 2 ranks needs communication",
        ),
        (
            "0",
            None,
            "pipeline",
            ", not local: a product of 2 ranks needs communication"
            ", not windows: COLLOPS_FUSED=0 selects the pipeline",
        ),
    ],
)
def test_the_trace_says_which_engine_and_why_not_the_others(
    fused: str, named: str | None, engine: str, why: str
) -> None:
    code = (
        "import collops, numpy as np\n"
        "param = collops.LinearParallelParam(rank=0, rank_size=2,"
        " backend='shm', comm_domain='tp')\n"
        "ins = [np.ones((4, 3), np.float32), np.ones((5, 3), np.float32)]\n"
        f"operation = collops.Operation(param, engine={named!r})\n"
        "for _ in range(2):\n"
        "    operation.get_workspace_size(ins, [np.empty((4, 5), np.float32)])\n"
    )
    done = program(code, COLLOPS_TRACE="1", COLLOPS_FUSED=fused)
    assert done.returncode == 0, done.stderr
    # The second call finds the plan of the first.
    assert done.stderr == f"r0/2 tp shm LinearParallel plan engine={engine}{why}\n"


@pytest.mark.parametrize("fused", ["1", "0"])
def test_doctor_lists_the_engines(fused: str) -> None:
    code = "from collops.cli import main; raise SystemExit(main(['doctor']))"
    done = program(code, COLLOPS_FUSED=fused)
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line.split(maxsplit=1) for line in done.stdout.splitlines() if line}
    assert lines["local"][1] == "not: a product of 2 ranks needs communication"
    if fused == "1":
        assert lines["windows"][1] == "runs"
        assert lines["pipeline"][1].startswith("can run")
    else:
        assert lines["windows"][1] == "not: COLLOPS_FUSED=0 selects the pipeline"
        assert lines["pipeline"][1] == "runs"
    assert lines["streams"][1].startswith("not: the tensors of backend shm are not on a device")
    assert lines["streams"][1].endswith("; runs on hccl, nccl, cuda")
