"""The command that measures the case rate runs, and prints the expected rows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from patience import patience

COMMAND = Path(__file__).with_name("case_rate.py")


def measure(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(COMMAND), *arguments],
        capture_output=True,
        text=True,
        timeout=patience(100),
    )


def test_it_runs_and_says_how_fast() -> None:
    done = measure("--cases", "60")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("60 passed, 0 failed, ")
    assert re.search(r"; \d+\.\d cases per second\n$", done.stdout)


def test_too_slow_is_no_success() -> None:
    assert measure("--cases", "4", "--at-least", "1000000").returncode == 1
