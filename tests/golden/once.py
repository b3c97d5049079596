"""The tensors of golden's cases, computed once in the test's process.

Ranks that are forked afterwards find them there and compute nothing; nobody writes to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from collops.golden import cases as golden
from collops.golden.cases import Case, case_bounds

inputs = lru_cache(maxsize=None)(golden.inputs)
expected = lru_cache(maxsize=None)(golden.expected)
all_outputs = lru_cache(maxsize=None)(golden.all_outputs)
bounds = lru_cache(maxsize=None)(case_bounds)


def compute(cases: Iterable[Case]) -> None:
    """Before the ranks are forked."""
    for case in cases:
        inputs(case)
        if case.operator == "linear_parallel":
            all_outputs(case)
            bounds(case)
        else:
            expected(case)


def forget() -> None:
    """Another module has other cases."""
    for computed in (inputs, expected, all_outputs, bounds):
        computed.cache_clear()
