"""Difference: a pattern of rows of case files in which collops differs from ATB by intent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .csv_row import CsvRow, Expectation
from .row_inputs import rank_input

_ACCEPTED = Expectation()


@dataclass(frozen=True)
class Difference:
    """A pattern of rows in which collops differs from ATB by intent.

    `pattern` describes the rows that `matches` finds; `instead` is the end of such a row in
    collops, None if it does not follow from the pattern.

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


def passed_numbers(row: CsvRow, position: int, length: int) -> list[int] | None:
    """Return the counts that rank 0 passes, None if they are unknown or their number is wrong.

    Example:
        >>> from .csv_row import RowTensor
        >>> counts = RowTensor("int64", (2,), generator="one")
        >>> row = CsvRow("a.csv:2", 1, "x", "AllToAllVV2Operation", {}, (counts,))
        >>> passed_numbers(row, 0, 2), passed_numbers(row, 0, 3)
        ([1, 1], None)
    """
    tensor = row.inputs[position]
    if not tensor.can_be_made or (not tensor.file and tensor.shape != (length,)):
        return None
    try:
        values = rank_input(row, 0, position)
    except (OSError, ValueError):
        return None
    return [int(value) for value in values] if values.shape == (length,) else None
