"""One rank of calls of every kind, in each of which rank 1 ends: ``inputs.py``.

It prints the calls that have not left their inputs alone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
os.environ["COLLOPS_BACKEND"] = "ucx"

from tests.faults.test_inputs import work

print("ready", flush=True)
print(*work(int(os.environ["COLLOPS_RANK"]), False), flush=True)
