"""The C++ fuzz program with many rounds: in `make fuzz` alone, as ctest runs it with few.

It is that of the sanitizers' build where `make sanitize` has left one, else the package's own.
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
NAME = "readers_fuzz_test"
# So that it takes about 10 s on one core; with the sanitizers a round takes longer.
ROUNDS = 6


def newest_build() -> Path | None:
    """A folder that has the program, not older than the sources that it was built from."""
    sources = [ROOT / "ops", ROOT / "tests" / "cpp"]
    newest = max(path.stat().st_mtime for folder in sources for path in folder.rglob("*.*"))
    for build in BUILDS:
        program = build / "tests" / "cpp" / NAME
        if program.exists() and program.stat().st_mtime > newest:
            return build
    return None


def test_many_rounds() -> None:
    build = newest_build()
    if build is None:
        pytest.skip("not built: make test or make sanitize builds them")
    print(f"{NAME} of {build}")
    done = subprocess.run(
        [build / "tests" / "cpp" / NAME],
        env={**os.environ, "COLLOPS_FUZZ_ROUNDS": str(ROUNDS)},
        capture_output=True,
        text=True,
        timeout=patience(110),
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
