"""Runs tests/jax: `make test-jax`; its arguments go to pytest.

JAX has an environment of its own, of 0.5 GB, with the installed package. Where it cannot be had, it
says why and ends with status 77.
"""

from __future__ import annotations

import sys

import run_tests
from environment import LIMIT_S, ROOT, Venv, say
from launchers import install_for_tests

FOLDER = ROOT / "build" / "jax"
JAX = "jax==0.10.2"
SKIPPED = 77


def install(venv: Venv) -> str:
    """JAX, what the tests need, and the package; "installed", or why not."""
    if not venv.is_made("jax", JAX):
        say(f"looking for {JAX}")
        result = venv.try_pip(JAX, limit_s=LIMIT_S)
        if result != "installed":
            return result
        venv.mark("jax", JAX)
    install_for_tests(venv)
    return "installed"


def main() -> int:
    """Sets everything up, runs the tests, and prints the result."""
    venv = Venv(FOLDER / "venv")
    venv.create()
    result = install(venv)
    if result != "installed":
        say(f"tests/jax not run: {JAX}: {result}")
        return SKIPPED
    run_tests.REPORTS.mkdir(parents=True, exist_ok=True)
    run_tests.ENV["COLLOPS_TEST_JAX"] = "1"
    outcome = run_tests.run_python(["tests/jax", *sys.argv[1:]], venv.python)
    outcome.required_as = "jax"
    run_tests.print_summary([outcome])
    return run_tests.status_of([outcome])


if __name__ == "__main__":
    raise SystemExit(main())
