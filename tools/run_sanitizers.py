"""Builds the C++ tests under the sanitizers and runs them; tsan sees ranks as threads.

Arguments name presets; without arguments those in DEFAULT run.
"""

from __future__ import annotations

import os
import shutil
import sys

from patience import patience
from run_tests import CTEST_JOBS, ENV, REPORTS, ROOT, Outcome, run, run_ctest, status_of

DEFAULT = ("asan-ubsan", "tsan")
SANITIZERS = ("asan", "ubsan", *DEFAULT)


def run_sanitizer(name: str) -> Outcome:
    """Configures, builds and tests one preset of CMakePresets.json."""
    outcome = Outcome(name, required_as=name)
    generator = ["-GNinja"] if shutil.which("ninja", path=ENV["PATH"]) else []
    jobs = str(len(os.sched_getaffinity(0)))
    if (
        run("cmake", "--preset", name, *generator) == 0
        and run("cmake", "--build", str(ROOT / "build" / name), "-j", jobs) == 0
    ):
        test = ["ctest", "--preset", name, "--timeout", f"{patience(600):.0f}", "-j", CTEST_JOBS]
        run_ctest(test, REPORTS / f"ctest-{name}.xml", outcome)
    else:
        outcome.problem = "the build failed"
    return outcome


def main(chosen: list[str]) -> int:
    """Runs the chosen presets, by default those in DEFAULT, and prints each result."""
    unknown = sorted(set(chosen) - set(SANITIZERS))
    if unknown:
        print(f"no such sanitizer: {', '.join(unknown)}; choose from {', '.join(SANITIZERS)}")
        return 2
    REPORTS.mkdir(parents=True, exist_ok=True)
    outcomes = [run_sanitizer(name) for name in chosen or DEFAULT]
    print("\nSummary")
    for outcome in outcomes:
        print(outcome.text())
    return status_of(outcomes)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
