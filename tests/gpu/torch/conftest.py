"""torch's CUDA tensors on simulated GPUs, where there is torch; `make test-gpu`."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path

LIBRARY = "libtorch_on_sim.so"
_FOLDER = os.environ.get("COLLOPS_SIM_GPU")

# Without it nothing here is collected: tools/gpu.py builds it where torch is installed.
_HAS_TORCH = (
    _FOLDER is not None
    and importlib.util.find_spec("torch") is not None
    and (Path(_FOLDER) / LIBRARY).exists()
)
collect_ignore_glob = [] if _HAS_TORCH else ["test_*.py"]

if _HAS_TORCH:
    # Before torch is imported, which looks for devices then. No GPU is touched: ranks are forked.
    ctypes.CDLL(f"{_FOLDER}/{LIBRARY}")
