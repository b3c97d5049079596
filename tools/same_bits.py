"""Runs tests/same_bits whole: `make test-same-bits`; `make test` runs a part of it.

About 50,000 products, in one or two minutes. Arguments go to pytest.
"""

from __future__ import annotations

import sys

import run_tests


def main() -> int:
    """Runs the tests and prints the result."""
    run_tests.REPORTS.mkdir(parents=True, exist_ok=True)
    run_tests.ENV["COLLOPS_ALL_BITS"] = "1"
    outcome = run_tests.run_python(["tests/same_bits", *sys.argv[1:]])
    run_tests.print_summary([outcome])
    return run_tests.status_of([outcome])


if __name__ == "__main__":
    raise SystemExit(main())
