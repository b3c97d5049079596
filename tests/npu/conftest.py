"""Runs on a simulated CANN (tests/npu/sim) with the real torch_npu; `make test-npu` sets it up."""

from __future__ import annotations

import os
import sys
from types import ModuleType

import pytest

# The folder of the simulated libraries; it must also be on LD_LIBRARY_PATH.
SIMULATOR = os.environ.get("COLLOPS_SIM_CANN")

# Without it nothing here is collected: `make test-npu` runs it.
collect_ignore_glob = [] if SIMULATOR else ["test_*.py", "*/test_*.py"]

if SIMULATOR:
    from tests.devices.on_npu import Npu


def pytest_report_header() -> str | None:
    """Where this folder is asked for: why there is nothing to run."""
    return None if SIMULATOR else "tests/npu: a simulated CANN comes with `make test-npu`"


@pytest.fixture
def npu() -> Npu:
    """The simulated NPU; ranks that are forked use it too."""
    return Npu()


@pytest.fixture
def torch_module() -> ModuleType:
    """torch, with torch_npu."""
    return sys.modules["torch"]
