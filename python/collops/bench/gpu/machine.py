"""What is known of the GPUs and of the libraries that ran: for every row of a benchmark."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

from collops.core import core

_DRIVER = "libcuda.so.1"
# Only the driver of tests/gpu/sim has it.
_SIMULATION = "SimHoldStream"
_VERSION = Path("/proc/driver/nvidia/version")


def is_simulated() -> bool:
    """Whether the driver is the one of the tests, which runs on the CPU."""
    try:
        return hasattr(ctypes.CDLL(_DRIVER), _SIMULATION)
    except OSError:
        return False


def check(backend: str, devices: tuple[int, ...]) -> None:
    """Raises ValueError unless the backend can run here, on these GPUs."""
    reasons = {name: reason for name, reason, _, _ in core().backends()}
    if backend not in reasons:
        raise ValueError(f"backend {backend!r} is not in this build of collops")
    if reasons[backend]:
        raise ValueError(reasons[backend])
    count = len(core().cuda_devices())
    if max(devices) >= count:
        raise ValueError(f"--devices {max(devices)}: there are {count} GPUs, from 0 on")


def facts(device: int) -> dict[str, Any]:
    """The GPU and the versions of what runs on it."""
    name, l2_bytes, multiprocessors = core().cuda_devices()[device]
    versions = dict(core().backend_facts("nccl"))
    return {
        "simulated": is_simulated(),
        "device": name,
        "multiprocessors": multiprocessors,
        "l2_bytes": l2_bytes,
        "driver": driver_version(),
        "driver_cuda": versions.get("CUDA of the driver"),
        "nccl": versions.get("NCCL"),
    }


def driver_version(path: Path = _VERSION) -> str | None:
    """The driver's own version, such as 580.65.06; None where the system does not say it."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None
    found = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", text)
    return found.group() if found else None
