"""Builds the C++ tests under the sanitizers and runs them; tsan sees ranks as threads.

Arguments name presets; without arguments those in DEFAULT run.
"""

from __future__ import annotations

import os
import shutil
import sys

from run_tests import ENV, ROOT, run

DEFAULT = ("asan-ubsan", "tsan")
SANITIZERS = ("asan", "ubsan", *DEFAULT)


def run_sanitizer(name: str) -> bool:
    """Configures, builds and tests one preset of CMakePresets.json."""
    generator = ["-GNinja"] if shutil.which("ninja", path=ENV["PATH"]) else []
    jobs = str(len(os.sched_getaffinity(0)))
    return (
        run("cmake", "--preset", name, *generator) == 0
        and run("cmake", "--build", str(ROOT / "build" / name), "-j", jobs) == 0
        and run("ctest", "--preset", name, "--timeout", "600", "-j", jobs) == 0
    )


def main(chosen: list[str]) -> int:
    """Runs the chosen presets, by default those in DEFAULT, and prints each result."""
    unknown = sorted(set(chosen) - set(SANITIZERS))
    if unknown:
        print(f"no such sanitizer: {', '.join(unknown)}; choose from {', '.join(SANITIZERS)}")
        return 2
    results = {name: run_sanitizer(name) for name in chosen or DEFAULT}
    print("\nSummary")
    for name, good in results.items():
        print(f"  {name:<10} {'passed' if good else 'FAILED'}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
