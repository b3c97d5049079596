"""torch's CUDA tensors on simulated GPUs, and torch_npu's on a simulated CANN, where there is
torch."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
from pathlib import Path

LIBRARY, RUNTIME = "libtorch_on_sim.so", "libcudart_on_sim.so"
FOLDER = Path(os.environ.get("COLLOPS_SIM_GPU", "/nowhere"))


def prepare_cuda_build() -> None:
    """Puts the simulated libraries before those that a CUDA build of torch brings."""
    ctypes.CDLL(str(FOLDER / RUNTIME), ctypes.RTLD_GLOBAL)
    packages = Path(importlib.util.find_spec("torch").origin).parent.parent / "nvidia"
    for simulated, own in (
        ("libnccl.so.2", "nccl/lib/libnccl.so.2"),
        ("libcublasLt.so.13", "cu13/lib/libcublasLt.so.13"),
    ):
        # Whoever asks for the name gets the first; torch finds in the second what that one lacks.
        ctypes.CDLL(str(FOLDER / simulated))
        ctypes.CDLL(str(packages / own), ctypes.RTLD_GLOBAL)
    importlib.import_module("torch")  # whose own operators come before the simulated ones


_ON_NPU = "COLLOPS_SIM_CANN" in os.environ  # where tests/devices/conftest.py imports torch_npu
# tools/gpu.py builds it where torch is installed.
_ON_GPU = importlib.util.find_spec("torch") is not None and (FOLDER / LIBRARY).exists()
_HAS_CUDA = (FOLDER / RUNTIME).exists()  # whether torch was built with CUDA
collect_ignore_glob = [] if _ON_NPU else ["test_npu_*.py"] if _ON_GPU else ["test_*.py"]
if _ON_NPU:
    collect_ignore_glob = ["test_gpu_*.py"]
collect_ignore = [] if _HAS_CUDA else ["test_gpu_cuda_build.py"]

if _ON_GPU:
    # No GPU is touched: ranks are forked.
    if _HAS_CUDA:
        prepare_cuda_build()
    # Else before torch is imported, which looks for devices then.
    ctypes.CDLL(str(FOLDER / LIBRARY))
