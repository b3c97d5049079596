"""The output of `collops doctor` on simulated GPUs: a line for each reason that stops a backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from collops.cli import main
from patience import patience
from tests import programs


def doctor(**environment: str) -> dict[str, dict[str, str]]:
    """Of each part of the report: its rows."""
    done = programs.run_forked(main, ["doctor"], env=environment, timeout=patience(60))
    assert done.returncode == ("COLLOPS_KERNELS" in environment), done.stderr
    found: dict[str, dict[str, str]] = {}
    rows: dict[str, str] = {}
    for line in done.stdout.splitlines():
        if line.startswith("  "):
            name, _, said = line.strip().partition("  ")
            rows[name] = said.strip()
        else:
            rows = found[line] = {}
    return found


def test_gpus_that_lack_nothing() -> None:
    found = doctor()
    assert found["Backends"]["cuda"] == found["Backends"]["nccl"] == "ready"
    cuda = found["CUDA"]
    assert cuda["driver"] == "CUDA 13.0"
    assert cuda["GPUs"] == "8"
    assert cuda["GPU 7"] == "simulated GPU 7, sm_90"
    assert cuda["peers"] == "all GPUs can address each other's memory"
    assert cuda["GPU kernels"] == "found"
    assert cuda["cuBLASLt, for LinearParallel"] == "found"
    assert found["NCCL"] == {"version": "2.30.7"}


SHARING = "ranks that are processes of one GPU"


def test_what_to_do_for_processes_of_one_gpu(tmp_path: Path) -> None:
    said = doctor()["CUDA"][SHARING]
    assert said.startswith("without MPS the GPU runs one process at a time")
    assert said.endswith("threads of one process, or start NVIDIA MPS (nvidia-cuda-mps-control -d)")
    assert doctor(COLLOPS_SIM_MPS="1")["CUDA"][SHARING] == "NVIDIA MPS runs"
    # A driver without the attribute: the daemon's pipe tells.
    old = {"COLLOPS_SIM_MPS": "-1", "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    assert doctor(**old)["CUDA"][SHARING] == said
    (tmp_path / "control").touch()
    assert doctor(**old)["CUDA"][SHARING] == "NVIDIA MPS runs"


def test_one_gpu_has_no_peers() -> None:
    cuda = doctor(COLLOPS_SIM_GPUS="1")["CUDA"]
    assert cuda["GPUs"] == "1" and "peers" not in cuda and "GPU 1" not in cuda


def test_gpus_without_peer_access_are_named() -> None:
    cuda = doctor(COLLOPS_SIM_GPUS="3", COLLOPS_SIM_NO_PEERS="1")["CUDA"]
    assert cuda["GPU 1's peers"].startswith("no: it cannot address GPU 0, 2, so backend cuda")
    assert cuda["GPU 2's peers"].startswith("no: it cannot address GPU 0, 1, so backend cuda")
    assert "peers" not in cuda


def test_an_old_gpu_is_named() -> None:
    cuda = doctor(COLLOPS_SIM_SM="75")["CUDA"]
    assert cuda["GPU 0"].startswith("no: simulated GPU 0, sm_75 is too old")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"COLLOPS_SIM_DRIVER": "11080"}, "no: CUDA's driver is one of CUDA 11.8: 12.0"),
        ({"COLLOPS_SIM_GPUS": "0"}, "no: CUDA's driver: cuInit returned 100 (CUDA_ERROR_NO_DEVICE"),
    ],
)
def test_a_driver_that_cannot_be_used(environment: dict[str, str], words: str) -> None:
    found = doctor(**environment)
    assert found["CUDA"]["driver"].startswith(words)
    assert "GPUs" not in found["CUDA"]
    assert found["CUDA"]["GPU kernels"] == "found"
    assert words.removeprefix("no: ") in found["Backends"]["nccl"]


def test_every_reason_has_a_line(tmp_path: Path) -> None:
    found = doctor(
        COLLOPS_SIM_GPUS="0",
        COLLOPS_SIM_NCCL="22605",
        COLLOPS_KERNELS=str(tmp_path / "none"),
    )
    assert found["CUDA"]["driver"].startswith("no: ")
    assert found["CUDA"]["GPU kernels"].startswith("no: the GPU kernels are missing")
    assert "NCCL 2.26.5 is too old, 2.27 is needed" in found["NCCL"]["no"]
