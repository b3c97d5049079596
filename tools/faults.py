"""Runs the tests of faults whole: `make test` and `make test-multihost` run a part of each.

Arguments name C++ programs of PROGRAMS; without arguments all run, tests/faults, and the draws
across hosts, which are network namespaces, where they can be had.
"""

from __future__ import annotations

import subprocess
import sys
import time

from multihost import reason_not_to_run
from patience import patience
from run_tests import BUILD, ENV, REPORTS, configure, is_required, run, run_python

# Each program, and the seconds after which it has failed on a quiet machine.
PROGRAMS = {
    "gone_test": 600,
    "lies_test": 1800,
    "moments_test": 900,
    "cycles_test": 120,
    "shrink_test": 300,
    "grow_test": 600,
    "signals_tests": 900,
}
DRAWS_ACROSS_HOSTS = [
    "tests/multihost/test_shrink.py::test_draws_of_two_hosts",
    "tests/multihost/test_shrink.py::test_draws_of_three_hosts",
    "tests/multihost/test_grow.py::test_killed_while_it_grows",
]


def run_whole(name: str, limit_s: int) -> bool:
    """Runs one program, with every case it has."""
    program = BUILD / "tests" / "cpp" / name
    start = time.monotonic()
    try:
        status = subprocess.run([str(program)], env=ENV, timeout=patience(limit_s)).returncode
    except subprocess.TimeoutExpired:
        status = -1
    print(f"{name}: {'ok' if status == 0 else 'FAILED'}, {time.monotonic() - start:.0f} s")
    return status == 0


def run_across_hosts() -> bool:
    """Runs the draws of several hosts, and prints their seeds.

    True also if it cannot, unless CI_REQUIRE names multihost.
    """
    reason = reason_not_to_run()
    if reason:
        print(f"across hosts: not run: {reason}")
        return not is_required("multihost")
    ENV["COLLOPS_TEST_PROGRAMS"] = str(BUILD / "tests" / "cpp")  # pytest collects them then
    outcome = run_python([*DRAWS_ACROSS_HOSTS, "-v"])
    outcome.name = "across hosts"
    print(outcome.text())
    return outcome.good


def main(chosen: list[str]) -> int:
    """Runs the chosen programs, by default all."""
    unknown = sorted(set(chosen) - set(PROGRAMS))
    if unknown:
        print(f"no such program: {', '.join(unknown)}; choose from {', '.join(PROGRAMS)}")
        return 2
    REPORTS.mkdir(parents=True, exist_ok=True)
    ENV["COLLOPS_ALL_FAULTS"] = "1"
    names = chosen or list(PROGRAMS)
    targets = [word for name in names for word in ("--target", name)]
    if not configure() or run("cmake", "--build", str(BUILD), *targets) != 0:
        return 1
    results = [chosen != [] or run_python(["tests/faults"]).good]
    results += [run_whole(name, PROGRAMS[name]) for name in names]  # all run, also after a failure
    results += [chosen != [] or run_across_hosts()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
