"""Compiles for arm64 and runs tests under an emulator; status 77 where the tools are missing.

The tests are those of the core's kernels, and of calls between ranks. Arguments go to cmake.
"""

from __future__ import annotations

import os
import shutil
import sys

from patience import VARIABLE, factor, patience
from run_tests import CTEST_JOBS, ENV, REPORTS, ROOT, Outcome, run, run_ctest, status_of

SKIPPED = 77
BUILD = str(ROOT / "build" / "aarch64")
# Each program, and the Debian package that has it.
NEEDED = {
    "cmake": "cmake",
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
}
# How much longer programs take under qemu than without it.
OF_EMULATOR = 5
PROGRAMS = ("kernels_tests", "shm_tests")
# What runs of them.
TESTS = (
    *("half_test", "reduce_test", "copy_test", "isa_test", "gemm_test"),
    "gemm_int8_test",
    *("arithmetic_peak_test", "shm_calls_test"),
)


def main(arguments: list[str]) -> int:
    """Compiles, runs the tests, and prints the result."""
    for program, package in NEEDED.items():
        if shutil.which(program, path=ENV["PATH"]) is None:
            print(f"collops: {program} not found: install the Debian package {package}")
            return SKIPPED
    ENV[VARIABLE] = f"{OF_EMULATOR * factor():g}"
    jobs = str(len(os.sched_getaffinity(0)))
    outcome = Outcome("arm64", required_as="cross-arm64")
    configure = ["cmake", "-S", ".", "-B", BUILD, "-DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake"]
    if (
        run(*configure, "-DCOLLOPS_WERROR=ON", *arguments) == 0
        and run("cmake", "--build", BUILD, "-j", jobs, "--target", *PROGRAMS) == 0
    ):
        REPORTS.mkdir(parents=True, exist_ok=True)
        test = ["ctest", "--test-dir", BUILD, "-j", CTEST_JOBS, "--output-on-failure"]
        test += ["--timeout", f"{OF_EMULATOR * patience(120):.0f}"]
        run_ctest(test, REPORTS / "ctest-arm64.xml", outcome, ["-R", f"^({'|'.join(TESTS)})$"])
    else:
        outcome.problem = "the build failed"
    print(f"\nSummary\n{outcome.text()}")
    return status_of([outcome])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
