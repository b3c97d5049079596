"""One rank that measures what it costs, and prints it as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

from tests.costs.rank_costs import measure

print(json.dumps(measure("ucx")), flush=True)
