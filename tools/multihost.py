"""Runs the tests of several hosts: `make test-multihost`; its arguments go to pytest.

The hosts are network namespaces of this machine. Where they, or UCX, cannot be had, it says why and
ends with status 77.
"""

from __future__ import annotations

import os
import sys

import run_tests
from environment import ROOT

TESTS = ["tests/multihost", "tests/costs/test_costs_of_hosts.py"]
PROGRAM = "ucx_exchange"
SKIPPED = 77


def reason_not_to_run() -> str:
    """Why there can be no two hosts or no UCX here; empty if there can."""
    sys.path.insert(0, str(ROOT))
    from tests.multihost.hosts import Unavailable, network

    try:
        with network(2):
            pass
    except Unavailable as error:
        return str(error)
    if not run_tests.ucx_folder() and not os.environ.get("COLLOPS_UCX_LIBRARY"):
        return "UCX is not installed: pip install libucx-cu13"
    return ""


def main() -> int:
    """Builds the C++ program of the tests, runs them, and prints the result."""
    reason = reason_not_to_run()
    if reason:
        print(f"collops: tests/multihost not run: {reason}")
        return SKIPPED
    jobs = str(len(os.sched_getaffinity(0)))
    build = ["cmake", "--build", str(run_tests.BUILD), "-j", jobs, "--target", PROGRAM]
    if not run_tests.configure() or run_tests.run(*build) != 0:
        return 1
    run_tests.REPORTS.mkdir(parents=True, exist_ok=True)
    run_tests.ENV["COLLOPS_TEST_PROGRAMS"] = str(run_tests.BUILD / "tests" / "cpp")
    outcome = run_tests.run_python([*TESTS, *sys.argv[1:]])
    outcome.required_as = "multihost"
    print(f"\nSummary\n{outcome.text()}")
    return run_tests.status_of([outcome])


if __name__ == "__main__":
    raise SystemExit(main())
