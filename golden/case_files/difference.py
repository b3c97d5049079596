"""A pattern of rows of case files in which collops differs from ATB by intent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .csv_row import CsvRow, Expectation

_ACCEPTED = Expectation()


@dataclass(frozen=True)
class Difference:
    """A pattern of rows where collops differs from ATB by intent, and how.

    `pattern` says in words which rows `matches` finds; `instead` is what collops does with such a
    row, None where that depends on more than the pattern.

    Example:
        >>> rule = Difference(("AllReduceOperation",), lambda row: False, "a rank may be empty")
        >>> str(rule.instead)
        'NO_ERROR'
    """

    operators: tuple[str, ...]
    matches: Callable[[CsvRow], bool]
    reason: str
    instead: Expectation | None = _ACCEPTED
    pattern: str = ""
