"""The process whose threads are the ranks of a benchmark on GPUs."""

from __future__ import annotations

import os
import sys

from collops.bench.launch import DROPPED
from collops.launch.environment import own_environment
from collops.launch.processes import new_job_id

RANK_PROGRAM = [sys.executable, "-m", "collops.bench.gpu.rank_program"]
# Ranks of one process on one GPU: NCCL's own switch for them; so few blocks that the kernels of 8
# ranks run at once (else they wait for each other for ever); a hardware queue for each rank's
# stream. A variable that is set already is left as it is.
_VARIABLES = {
    "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    "NCCL_MAX_CTAS": "16",
    "CUDA_DEVICE_MAX_CONNECTIONS": "32",
}


def process_of_ranks() -> dict[str, str]:
    """The variables of the process."""
    own = {name: os.environ.get(name, value) for name, value in _VARIABLES.items()}
    env = own_environment({**own, "COLLOPS_JOB_ID": new_job_id("bench")})
    kept = {name: value for name, value in env.items() if name not in DROPPED}
    return {**kept, "COLLOPS_JOB_ID": env["COLLOPS_JOB_ID"]}
