"""What is declared of CUDA, NCCL and cuBLASLt, against headers that `make test-gpu` looks for."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("COLLOPS_SIM_GPU") else ["test_*.py"]
