"""What to do with a row of a case file: run it, skip it, or count it as a known difference."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..data.dtypes import storage
from ..operators.table import OPERATIONS
from .csv_row import MOST_RANKS, CsvRow, Expectation
from .differences import difference_of

# The chip whose rules collops follows. An error that a row expects only on other chips (for example
# for a dtype that the 310P lacks) need not occur in collops.
MIRRORED_SOC = "Ascend910B"
# Of one tensor of one rank, in a row that must work; and the most that ATB takes.
MOST_BYTES, _ATB_BYTES = 1 << 29, 256 * 10**9


@dataclass(frozen=True)
class Plan:
    """Whether a row is run, and why not.

    `action` is "run", "skip" (the row does not apply to collops) or "differs" (collops differs from
    ATB by intent and does `instead`, if that is known). `excuse` says why a row that expects an
    error may end without one; it then counts as skipped.

    Example:
        >>> Plan("run").reason
        ''
    """

    action: str
    reason: str = ""
    instead: Expectation | None = None
    excuse: str = ""


def plan_row(row: CsvRow) -> Plan:
    """Return what to do with a row, by the first of these rules that applies.

    Skipped: an operator that is not one of collops', tensors of format FRACTAL_NZ (unless the row
    expects its refusal), more ranks than MOST_RANKS (unless creation must fail), tensors of
    MOST_BYTES or more (unless an error is expected, which needs no data). Then the rows of
    differences.DIFFERENCES; the others run, with an excuse where the row expects its error on other
    chips alone.

    Args:
        row: the row.

    Returns:
        The plan; its reason is empty for rows that run.

    Example:
        >>> plan_row(CsvRow("a.csv:2", 1, "x", "FillOperation", {})).reason
        'FillOperation is not an operator of collops'
        >>> plan_row(CsvRow("a.csv:3", 2, "x", "AllGatherVOperation", {"rankSize": 2})).action
        'run'
    """
    if row.operator not in OPERATIONS:
        return Plan("skip", f"{row.operator} is not an operator of collops")
    for is_outside, reason in _OUTSIDE:
        if is_outside(row):
            return Plan("skip", reason)
    known = difference_of(row)
    if known:
        return Plan("differs", known.reason, known.instead)
    return Plan("run", excuse=_ELSEWHERE if _fails_elsewhere_only(row) else "")


def _has_nz_data(row: CsvRow) -> bool:
    refused = row.expected.name in ("ERROR_INVALID_TENSOR_INI_MATCH", "ERROR_INVALID_TENSOR_FORMAT")
    return not refused and any(t.format == "fractal_nz" for t in (*row.inputs, *row.outputs))


def _has_too_many_ranks(row: CsvRow) -> bool:
    return row.rank_size > MOST_RANKS and row.expected.stage != "create"


def _has_huge_data(row: CsvRow) -> bool:
    """Whether golden, which computes what all ranks get, would need many times as much memory."""
    made = [t for t in (*row.inputs, *row.outputs) if t.can_be_made]
    sizes = [math.prod(t.shape) * storage(t.dtype).itemsize for t in made]
    # Those beyond ATB's own limit are for the operator to refuse.
    return not row.expected.stage and MOST_BYTES <= max(sizes, default=0) <= _ATB_BYTES


def _fails_elsewhere_only(row: CsvRow) -> bool:
    fails = row.expected.stage != ""
    return fails and bool(row.soc_versions) and MIRRORED_SOC not in row.soc_versions


_OUTSIDE: tuple[tuple[Callable[[CsvRow], bool], str], ...] = (
    (_has_nz_data, "FRACTAL_NZ data"),
    (_has_too_many_ranks, f"more than {MOST_RANKS} ranks"),
    (_has_huge_data, f"a tensor of {MOST_BYTES >> 20} MiB or more"),
)
_ELSEWHERE = "the expected error exists on another SoC alone"
