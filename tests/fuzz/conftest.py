"""How many examples hypothesis tries: few in `make test`, 20 times as many in `make fuzz`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

EXAMPLES = 15

# Ranks are processes: starting them is slow, and how slow says nothing.
COMMON = settings(
    deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], database=None
)
# The same examples in every run, so that a change of the sources alone can fail it.
settings.register_profile("quick", COMMON, max_examples=EXAMPLES, derandomize=True)
settings.register_profile("fuzz", COMMON, max_examples=20 * EXAMPLES)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "quick")
settings.load_profile(PROFILE)
collect_ignore = [] if PROFILE == "fuzz" else ["test_cpp_readers.py"]
