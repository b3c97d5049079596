"""The tests of collops.jax, which `make test-jax` runs in an environment with JAX.

The process of pytest never imports jax, which cannot be used after a fork: each rank does.
"""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("COLLOPS_TEST_JAX") else ["*"]
