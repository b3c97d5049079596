"""Runs on simulated GPUs (tests/gpu/sim), on which nothing but collops runs; `make test-gpu`."""

from __future__ import annotations

import os

import pytest

# The folder of the simulated libraries; it must also be on LD_LIBRARY_PATH.
SIMULATOR = os.environ.get("COLLOPS_SIM_GPU")

# Without it nothing here is collected: `make test-gpu` runs it.
collect_ignore_glob = [] if SIMULATOR else ["test_*.py", "*/test_*.py"]

if SIMULATOR:
    from tests.devices.on_gpu import Gpu


@pytest.fixture(autouse=True)
def ranks_have_time_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After one has failed: simulated kernels are slow to see it on a busy machine."""
    monkeypatch.setattr("collops.testing.run.GRACE_S", 60.0)


def pytest_report_header() -> str | None:
    """Where this folder is asked for: why there is little to run."""
    return None if SIMULATOR else "tests/gpu: simulated GPUs come with `make test-gpu`"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """The simulated GPUs, for ranks that are forked. A mistake that CUDA has no answer for, such as
    memory that is freed while a stream will use it, ends its process. What the tests themselves
    call may wait for kernels, as any program does."""
    if not SIMULATOR:
        pytest.skip("simulated GPUs come with `make test-gpu`")
    monkeypatch.setenv("COLLOPS_SIM_STRICT", "1")
    monkeypatch.setenv("COLLOPS_SIM_WAITS_OF", "_core")
    return Gpu()
