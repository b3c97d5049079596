"""collops.CudaArray on simulated GPUs: memory without torch and CuPy."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("COLLOPS_SIM_GPU") else ["test_*.py"]
