"""`collops bench --backend`: options, messages, matrices of a GPU; where there is no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import collops
from collops.bench import gpu
from collops.bench.command import main
from collops.bench.gpu import DeviceElement
from collops.bench.launch import process_of_ranks
from collops.bench.operators import OPERATORS, load
from collops.bench.operators.linear_parallel import summary
from collops.bench.options import on_gpu, parse
from collops.bench.peers import GPU_PEERS
from collops.bench.tables import machine_text
from patience import patience
from tests import programs

NO_GPU = {**os.environ, "LD_LIBRARY_PATH": ""}
# What a benchmark can measure on a GPU: calls that take a stream.
ON_GPU = {"all_gather_v", "all_reduce", "all_to_all", "linear_parallel", "reduce_scatter_v"}


@pytest.mark.parametrize("backend", ["cuda", "nccl"])
@pytest.mark.parametrize("name", ["all_gather_v", "linear_parallel"])
def test_without_a_driver_one_line_says_so(name: str, backend: str) -> None:
    words = [sys.executable, "-m", "collops", "bench", name, "--quick", "--backend", backend]
    done = programs.run(words, capture_output=True, env=NO_GPU)
    if "backend" not in done.stderr:
        pytest.skip("this machine has a driver of CUDA")
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"collops bench {name}: backend {backend}: ")
    assert "libcuda.so.1" in line or "this build" in line


def test_the_operators_that_have_a_benchmark_on_gpus() -> None:
    assert {name for name in OPERATORS if load(name).on_gpu} == ON_GPU


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
        (("--backend", "cuda", "--calls", "0"), "a whole number of 1 or more"),
        (
            ("--backend", "cuda", "--peers", "gloo"),
            "--peers gloo cannot be combined with --backend cuda",
        ),
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


def test_what_the_options_want(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = asked(monkeypatch, "cuda")
    assert (usual.backend, usual.devices, usual.graph) == ("cuda", (0,), False)
    assert usual.calls >= 20
    given = asked(monkeypatch, "cuda", "--devices", "1,0", "--calls", "7", "--graph")
    assert (given.devices, given.calls, given.graph) == ((1, 0), 7, True)


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
    simulated = machine_text({**FACTS, "simulated": True, "driver": "580.1", "nccl": None})
    assert simulated.startswith("SIMULATED: no GPU was used, and no time is one of a GPU; ")
    assert "driver 580.1, NCCL not there" in simulated


def test_a_table_of_products_needs_no_peak_and_no_window() -> None:
    row = {"ms": 2.0, "ms_p10": 1.0, "ms_p90": 3.0, "gflops": 8.0, "memory_mib": None}
    row |= {"label": "x", "wrong_ranks": 0, "mpi": "", "parts_ms": {}, "iterations": 3, **FACTS}
    row |= {"grid": (1, 2), "type": 1, "dtype": "bf16", "m": 1, "k": 2, "n": 3}
    row |= {"gather_rows": (1,), "scatter_rows": (1, 0), "place_us": [None, None]}
    others = {
        name: {**row, "column": name, "ms": ms} for name, ms in (("fused", 2.2), ("gemm", 2.0))
    }
    operator = load("linear_parallel")
    rows = [operator.compare(other, others) for other in others.values()]
    assert [(row["to_gemm"], row["to_fused"], row["to_limit"]) for row in rows] == [
        (1.1, 1.0, None),
        (1.0, 0.9091, None),
    ]
    assert "20 calls in a graph between two events; 3 rounds" in operator.text(rows)
    head, [line] = summary([rows])
    assert dict(zip(head, line, strict=True))["fused / GEMM"] == "1.100"


class Array:
    """What collops.cuda_empty makes, on the host."""

    def __init__(self, shape: tuple[int, ...], name: str, device: int) -> None:
        self.dtype = np.dtype(name)
        self.elements = np.zeros(shape, self.dtype)
        self.device = device
        self.streams: list[Any] = []

    def read(self, stream: Any) -> Any:
        self.streams.append(stream)
        return self.elements.copy()

    def write(self, array: Any, stream: Any) -> None:
        assert (array.shape, array.dtype) == (self.elements.shape, self.dtype)
        self.streams.append(stream)
        self.elements[:] = array


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_matrices_of_a_gpu_hold_what_those_of_the_host_do(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collops, "cuda_empty", Array, raising=False)
    stream = SimpleNamespace(device=3)
    element, host = DeviceElement(dtype, stream), DeviceElement.__base__(dtype)
    there, here = element.matrix(5, 7), host.matrix(5, 7)
    assert (len(there), there.shape, there.nbytes) == (5, (5, 7), here.nbytes)
    for each, matrix in ((element, there), (host, here)):
        each.fill_whole(matrix, (1, 2), 3)
    assert element.num_different(there, here) == 0
    element.flip(there)
    assert element.num_different(there, here) == 35
    element.flip(there)
    assert element.num_different(here, there) == 0
    element.poison(there)
    assert np.isnan(there.array.elements).all()
    assert element.numbers(there) is there.array
    assert there.array.device == 3
    assert set(map(id, there.array.streams)) == {id(stream)}
    first = element.scratch(9)
    assert first.elements.nbytes == 9
    assert element.scratch(5) is first  # calls of one stream can share it
    assert element.scratch(10).elements.nbytes == 10


def test_the_help_names_the_options() -> None:
    words = [sys.executable, "-m", "collops", "bench", "all_gather_v", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=patience(60), check=True)
    assert "--backend {cuda,nccl}" in done.stdout
    assert "--devices 0,1" in done.stdout
