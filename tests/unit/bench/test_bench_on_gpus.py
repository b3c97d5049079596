"""`collops bench --backend` where there is no GPU: its options, and what it says."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collops.bench import gpu
from collops.bench.command import main
from collops.bench.launch import process_of_ranks
from collops.bench.operators import load
from collops.bench.options import on_gpu, parse
from collops.bench.peers import GPU_PEERS
from collops.bench.tables import machine_text
from tests import programs

NO_GPU = {**os.environ, "LD_LIBRARY_PATH": ""}


@pytest.mark.parametrize(
    ("name", "backend"), [("all_gather_v", "cuda"), ("linear_parallel", "nccl")]
)
def test_without_a_driver_one_line_says_so(name: str, backend: str) -> None:
    words = [sys.executable, "-m", "collops", "bench", name, "--quick", "--backend", backend]
    done = programs.run(words, capture_output=True, env=NO_GPU)
    if "backend" not in done.stderr:
        pytest.skip("this machine has a driver of CUDA")
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"collops bench {name}: backend {backend}: ")
    assert "libcuda.so.1" in line or "this build" in line


def refused(name: str, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The line with which a command is refused before anything runs."""
    try:
        status = main(name, ["--quick", *words])
    except SystemExit as ended:
        status = int(ended.code or 0)
    assert status == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--devices", "1"), "--devices needs --backend cuda or nccl"),
        (("--calls", "3"), "--calls needs --backend"),
        (("--graph",), "--graph needs --backend"),
        (("--peers", "nccl"), "--peers nccl needs --backend"),
        (("--backend", "shm"), "invalid choice: 'shm'"),
        (("--backend", "cuda", "--devices", "a"), "numbers of GPUs such as 0,1 are needed"),
        (("--backend", "cuda", "--peers", "gloo"), "--peers gloo cannot be combined with --back"),
        (("--backend", "cuda", "--mpi", "/opt"), "cannot be combined with --mpi"),
        (("--backend", "cuda", "--algorithms"), "cannot be combined with --algorithms"),
    ],
)
def test_options_that_do_not_fit(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused("all_gather_v", capsys, *words)


def test_an_operator_without_a_benchmark_on_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused("barrier", capsys, "--backend", "nccl")
    assert line.endswith("--backend nccl: barrier has no benchmark on GPUs")


def asked(monkeypatch: pytest.MonkeyPatch, *words: str, ready: str = "", gpus: int = 2) -> Any:
    """What the options want, on a machine with GPUs."""
    module = SimpleNamespace(
        backends=lambda: [("cuda", ready, "cuda", ""), ("shm", "", "cpu", "")],
        cuda_devices=lambda: [("a GPU", 1 << 20, 4)] * gpus,
    )
    monkeypatch.setattr(gpu, "core", lambda: module)
    operator = load("all_gather_v")
    return on_gpu(operator, parse(operator, ["--backend", *words]), 0)


def test_gpus_and_backends_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"--devices 2: there are 2 GPUs, from 0 on"):
        asked(monkeypatch, "cuda", "--devices", "0,2")
    with pytest.raises(ValueError, match=r"^backend cuda: no libcuda$"):
        asked(monkeypatch, "cuda", ready="backend cuda: no libcuda")
    with pytest.raises(ValueError, match=r"backend 'nccl' is not in this build"):
        asked(monkeypatch, "nccl")


def test_the_peers_are_those_of_the_place() -> None:
    operator = load("linear_parallel")
    assert parse(operator, ["--backend", "cuda"]).peers == GPU_PEERS
    assert parse(operator, []).peers == operator.peers
    assert parse(operator, ["--backend", "cuda", "--peers", "none"]).peers == ()


def test_the_process_of_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_MAX_CTAS", "2")
    monkeypatch.setenv("COLLOPS_BACKEND", "shm")
    monkeypatch.setenv("RANK", "3")
    env = process_of_ranks()
    assert (env["NCCL_MAX_CTAS"], env["NCCL_MULTI_RANK_GPU_ENABLE"]) == ("2", "1")
    assert not {"COLLOPS_BACKEND", "RANK"} & set(env)
    assert process_of_ranks()["COLLOPS_JOB_ID"] != env["COLLOPS_JOB_ID"]


def test_the_version_of_the_driver(tmp_path: Path) -> None:
    said = tmp_path / "version"
    assert gpu.driver_version(said) is None
    said.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release\n")
    assert gpu.driver_version(said) == "580.65.06"
    said.write_text("nothing\n")
    assert gpu.driver_version(said) is None


FACTS = {
    "simulated": False,
    "device": "some GPU",
    "devices": [0, 1, 0],
    "driver": None,
    "driver_cuda": "13.0",
    "nccl": "2.30.7",
    "calls": 20,
    "graph": True,
}


def test_a_row_says_where_it_was_measured() -> None:
    text = machine_text(FACTS)
    assert text == (
        "some GPU (ranks on GPU 0, 1), driver of CUDA 13.0, NCCL 2.30.7; 20 calls in a graph "
        "between two events"
    )
    assert "driver 580.1, NCCL not there" in machine_text({**FACTS, "driver": "580.1", "nccl": ""})
