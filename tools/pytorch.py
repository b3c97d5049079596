"""Runs tests/torch: `make test-torch`; its arguments go to pytest.

DeepSpeed and Accelerate are installed first; their tests skip where that fails. Where PyTorch
cannot be had, it says why and ends with status 77.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import run_tests
from environment import Venv, make_training

SKIPPED = 77


def reason_not_to_run() -> str:
    """Why there is no torch here; empty if there is."""
    if importlib.util.find_spec("torch") is not None:
        return ""
    stamp = run_tests.TORCH_STAMP
    lines = stamp.read_text().splitlines()[1:] if stamp.exists() else []
    return lines[0] if lines else "torch is not installed: pip install '.[torch]'"


def main() -> int:
    """Runs the tests and prints the result."""
    reason = reason_not_to_run()
    if reason:
        print(f"collops: tests/torch not run: {reason}")
        return SKIPPED
    make_training(Venv(Path(sys.prefix)))
    run_tests.REPORTS.mkdir(parents=True, exist_ok=True)
    run_tests.ENV["COLLOPS_TEST_TORCH"] = "1"
    outcome = run_tests.run_python(["tests/torch", *sys.argv[1:]])
    outcome.required_as = "torch"
    run_tests.print_summary([outcome])
    return run_tests.status_of([outcome])


if __name__ == "__main__":
    raise SystemExit(main())
