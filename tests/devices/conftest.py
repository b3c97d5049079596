"""The same tests on simulated GPUs and on a simulated CANN: `make test-gpu`, `make test-npu`."""

from __future__ import annotations

import os
from typing import Any

import pytest

_ON_GPU, _ON_NPU = (os.environ.get(name) for name in ("COLLOPS_SIM_GPU", "COLLOPS_SIM_CANN"))

collect_ignore_glob = [] if _ON_GPU or _ON_NPU else ["test_*.py", "*/test_*.py"]

if _ON_NPU:
    from tests.devices.on_npu import Npu
elif _ON_GPU:
    from tests.devices.on_gpu import Gpu


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves out tests of the other kind of device."""
    here = "npu" if _ON_NPU else "gpu"
    items[:] = [
        item for item in items if getattr(getattr(item, "obj", None), "only_on", here) == here
    ]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The simulated devices, for ranks that are forked. A mistake that CUDA has no answer for, such
    as memory that is freed while a stream will use it, ends its process. What the tests themselves
    call may wait for kernels, as any program does."""
    monkeypatch.setattr("collops.testing.run.GRACE_S", 60.0)
    if _ON_NPU:
        return Npu()
    monkeypatch.setenv("COLLOPS_SIM_STRICT", "1")
    monkeypatch.setenv("COLLOPS_SIM_WAITS_OF", "_core")
    return Gpu()
