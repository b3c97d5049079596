"""The C++ fuzz programs with many rounds: in `make fuzz` alone, as ctest runs them with few.

They are those of the sanitizers' build where `make sanitize` has left one, else the package's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from patience import patience

ROOT = Path(__file__).resolve().parents[2]
BUILDS = (ROOT / "build" / "asan-ubsan", ROOT / "build" / f"cmake-{sys.implementation.cache_tag}")
# So that each takes about 10 s on one core; with the sanitizers a round takes longer.
ROUNDS = {"readers_fuzz_test": 6, "records_fuzz_test": 3}


def newest_build() -> Path | None:
    """A folder that has all programs, not older than the sources that they were built from."""
    sources = [ROOT / "ops", ROOT / "tests" / "cpp"]
    newest = max(path.stat().st_mtime for folder in sources for path in folder.rglob("*.*"))
    for build in BUILDS:
        programs = [build / "tests" / "cpp" / name for name in ROUNDS]
        if all(one.exists() and one.stat().st_mtime > newest for one in programs):
            return build
    return None


@pytest.mark.parametrize("name", ROUNDS)
def test_many_rounds(name: str) -> None:
    build = newest_build()
    if build is None:
        pytest.skip("not built: make test or make sanitize builds them")
    print(f"{name} of {build}")
    done = subprocess.run(
        [build / "tests" / "cpp" / name],
        env={**os.environ, "COLLOPS_FUZZ_ROUNDS": str(ROUNDS[name])},
        capture_output=True,
        text=True,
        timeout=patience(110),
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
