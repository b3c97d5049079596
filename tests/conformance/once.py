"""Golden's expected results of its cases, computed once in the test's process.

Ranks that are forked afterwards find it there and compute nothing; nobody writes to it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from collops.golden import cases as golden
from collops.golden.cases import Case, case_bounds
from collops.golden.data.bounds import Bound

inputs = cache(golden.inputs)
KEPT_FOR: list[str] = []


def listed(case: Case) -> list[list[Any]]:
    return [list(own.values()) for own in inputs(case)]


@cache
def all_outputs(case: Case) -> list[list[Any]]:
    return golden.all_outputs(case, listed(case))


@cache
def bounds(case: Case) -> list[Bound] | None:
    return case_bounds(case, listed(case))


def keep_only(operator: str) -> None:
    """Before the runs of an operator: what was kept for another one is forgotten."""
    if operator not in KEPT_FOR:
        KEPT_FOR[:] = [operator]
        for computed in (inputs, all_outputs, bounds):
            computed.cache_clear()
