"""Which memory the tensors of a backend are made in."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from collops.core import core
from collops.golden_run.memory.of_collops import OwnMemory
from collops.golden_run.memory.of_cupy import CupyMemory
from collops.golden_run.memory.of_torch import TorchMemory
from collops.terminal.installation import is_installed

if TYPE_CHECKING:
    from collops.golden_run.memory.device_memory import DeviceMemory


@cache
def memory_of(backend: str) -> DeviceMemory | None:
    """The device memory of the backend's tensors; None if they lie in that of the CPU.

    On GPUs it is torch's if torch was built with CUDA, else CuPy's, else that of collops' arrays.
    """
    place = next((where for name, where, _ in core().backend_kinds() if name == backend), "cpu")
    if place == "npu":
        return TorchMemory("npu", "torch_npu", backend)
    return _memory_of_gpus() if place == "cuda" else None


@cache
def _memory_of_gpus() -> DeviceMemory:
    if _torch_has_cuda():
        return TorchMemory("cuda", "torch", "cuda")
    return CupyMemory() if is_installed("cupy") else OwnMemory()


def _torch_has_cuda() -> bool:
    """Whether torch was built with CUDA. No GPU is asked for: ranks will be forked."""
    try:
        return import_module("torch").version.cuda is not None
    except (ImportError, OSError, RuntimeError):
        return False
