"""Devices on which runs are walked, and memory on them."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from collops.golden_run.backends import DeviceMemory, memory_of
from collops.golden_run.rank import Door

# Kinds of devices, with the environment of ranks on them: a mistake on a simulated GPU ends its
# process, and what the tests themselves call may wait for kernels, as any program does.
DEVICES = {
    "npu": {},
    "cuda": {"COLLOPS_SIM_STRICT": "1", "COLLOPS_SIM_WAITS_OF": "_core"},
}
# `make test-npu` and `make test-gpu` walk the runs on their device's tensors and no others.
_NAMED = {"npu": "COLLOPS_SIM_CANN", "cuda": "COLLOPS_SIM_GPU"}
POISON = 0xA5
HERE = next((device for device, name in _NAMED.items() if os.environ.get(name)), "")

# Of the ranks that are threads of one process.
together = Door()
_kept = threading.local()


def scratch(memory: DeviceMemory, size: int) -> Any:
    """A workspace, which calls of a rank share one after the other: that of cuBLASLt is 32 MiB."""
    kept = getattr(_kept, "size", 0)
    if size > kept:
        _kept.size = max(size, 2 * kept)
        _kept.tensor = memory.to_device(np.full(_kept.size, POISON, np.uint8), "uint8")
    return _kept.tensor


# What makes the tensors is imported before ranks are forked.
BACKENDS_HERE = {"npu": ["hccl"], "cuda": ["cuda", "nccl"]}.get(HERE, [])
for _backend in BACKENDS_HERE:
    _memory = memory_of(_backend)
    assert _memory is not None
    _memory.load()
