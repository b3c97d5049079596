"""`collops golden run` where ranks share GPUs, are threads, or were started by a launcher."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from collops.golden.case_files import write_cases
from collops.golden.cases import all_cases

from collops.cli import main
from collops.golden_run.backends import OwnMemory
from patience import patience
from tests import programs
from tests.devices.golden_runs import ON_GPUS, SAMPLES, counted, golden_run


def test_more_ranks_than_gpus_share_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLLOPS_SIM_GPUS", "2")
    cases = all_cases("all_gather_v", text="p4.shares")
    manifest = write_cases(cases, tmp_path)
    done = golden_run(manifest, "--backend", "cuda")
    assert counted(done) == ([len(cases), 0, 0, 0], {}), done.stdout + done.stderr


def test_ranks_that_a_launcher_has_started() -> None:
    golden = ["-m", "collops", "golden", "run", str(SAMPLES / "broadcast.csv")]
    words = ["run", "-n", "2", *golden, "--filter", "1", "--backend", "nccl"]
    done = programs.run_forked(main, words, env=ON_GPUS, timeout=patience(110))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[0] 1 passed, 0 failed" in done.stdout


@pytest.mark.parametrize("gpus", ["8", "1"])
def test_ranks_that_are_threads(gpus: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a GPU each, and on one: then each has a stream of its own."""
    monkeypatch.setenv("COLLOPS_SIM_GPUS", gpus)
    rows = (SAMPLES / "linear_parallel.csv").read_text().splitlines()
    threads = [row for row in rows[1:] if '"commMode": 1' in row and "NO_ERROR" in row]
    gathers = (SAMPLES / "all_gather_v.csv").read_text().splitlines()[1:4]
    threads += [row.replace('"backend"', '"commMode": 1, "backend"') for row in gathers]
    file = tmp_path / "threads.csv"
    file.write_text("\n".join([rows[0], *threads]) + "\n")
    done = golden_run(file, "--backend", "cuda")
    assert done.returncode == 0, done.stdout + done.stderr
    assert counted(done) == ([len(threads), 0, 0, 0], {})


def test_threads_have_their_memory_before_any_kernel_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rank 1 comes late, and asks the driver for memory, which may wait for all kernels."""
    from tests.gpu.simulated.simulated_driver import Driver

    right = OwnMemory.to_device

    def late(self: OwnMemory, array: Any, dtype: str) -> Any:
        if threading.current_thread().name == "rank 1":
            time.sleep(0.3)
            Driver().alloc(1)
        return right(self, array, dtype)

    monkeypatch.setattr(OwnMemory, "to_device", late)
    head, row, *_ = (SAMPLES / "all_gather_v.csv").read_text().splitlines()
    file = tmp_path / "threads.csv"
    threads = [row.replace('"backend"', '"commMode": 1, "backend"')] * 3
    file.write_text("\n".join([head, *threads]) + "\n")
    on_one = {"COLLOPS_SIM_GPUS": "1", "COLLOPS_SIM_WAITS_OF": ""}  # of all callers
    done = golden_run(file, "--backend", "cuda", **on_one)
    assert counted(done) == ([3, 0, 0, 0], {}), done.stdout + done.stderr


def test_a_backend_that_cannot_run_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLLOPS_SIM_GPUS", "0")
    done = golden_run(SAMPLES / "send.csv", "--backend", "nccl")
    assert (done.returncode, done.stdout) == (2, "")
    assert "CUDA_ERROR_NO_DEVICE" in done.stderr
