"""Golden's expected results of its cases, computed once in the test's process.

Ranks that are forked afterwards find it there and compute nothing; nobody writes to it.
"""

from __future__ import annotations

from functools import cache

from collops.golden import cases as golden
from collops.golden.cases import Case, case_bounds
from collops.golden.data.bounds import Bound

inputs = cache(golden.inputs)
all_outputs = cache(golden.all_outputs)
KEPT_FOR: list[str] = []


@cache
def bounds(case: Case) -> list[Bound] | None:
    return case_bounds(case, [list(own.values()) for own in inputs(case)])


def keep_only(operator: str) -> None:
    """Before the runs of an operator: what was kept for another one is forgotten."""
    if operator not in KEPT_FOR:
        KEPT_FOR[:] = [operator]
        for computed in (inputs, all_outputs, bounds):
            computed.cache_clear()
