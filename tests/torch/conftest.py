"""The tests of collops.torch, which `make test-torch` runs."""

from __future__ import annotations

import os

# They take minutes, and most of that is training and compiling by torch.
collect_ignore_glob = [] if os.environ.get("COLLOPS_TEST_TORCH") else ["*"]
