"""`collops golden run` on simulated devices, in a process of its own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from subprocess import CompletedProcess

from collops.cli import main
from patience import patience
from tests import programs

SAMPLES = Path(__file__).resolve().parents[2] / "examples" / "golden"
KIND = "npu" if "COLLOPS_SIM_CANN" in os.environ else "cuda"
ON_GPUS = {"COLLOPS_SIM_STRICT": "1", "COLLOPS_SIM_WAITS_OF": "_core"} if KIND == "cuda" else {}
TRANSPOSE = f"AllToAll: transpose copies columns on the CPU; x is on {KIND}:0"
LEAVES = (
    'LinearParallel: engine "streams" cannot run this call: it does not sum leaves: aclnn\'s '
    "products do not add in ascending k, and HCCL adds in an order of its own"
)
MESSAGES = "backend cuda does not run it: backend cuda has no messages between two ranks: use nccl"
# What a backend refuses, and in how many of the samples.
REFUSED = {
    backend: {
        f"backend {backend} does not run it: {TRANSPOSE}": 3,
        f"backend {backend} does not run it: backend {backend}: AllReduce with a quantType runs on "
        "CPU tensors alone": 4,
        **({f"backend {backend} does not run it: {LEAVES}": 9} if backend == "hccl" else {}),
    }
    for backend in ("cuda", "nccl", "hccl")
}
REFUSED["cuda"][MESSAGES] = 14
BACKENDS = ["hccl"] if KIND == "npu" else ["cuda", "nccl"]


def golden_run(*arguments: object, **environment: str) -> CompletedProcess[str]:
    words = ["golden", "run", *map(str, arguments)]
    return programs.run_forked(main, words, env=ON_GPUS | environment, timeout=patience(300))


def counted(done: CompletedProcess[str]) -> tuple[list[int], dict[str, int]]:
    """What passed, failed, differs and was skipped; and the reasons of the last."""
    line = done.stdout.splitlines()[-1]
    numbers = re.findall(r"(\d+) (?:passed|failed|differ|skipped)\b", line)
    refused = re.findall(r"(\d+) (backend .*?)(?=, \d+ backend|\); )", line)
    return [int(n) for n in numbers], {why: int(n) for n, why in refused}
