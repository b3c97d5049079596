"""What to do with a row of a case file: run it, skip it, or count it as a known difference."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from .csv_row import MOST_RANKS, OPERATORS, CsvRow, Expectation
from .differences import difference_of
from .row_reference import REFERENCES

# The operators that golden has a reference of, by the name of a case file.
BUILT = tuple(REFERENCES)

# The chip whose rules collops mirrors. An error that a row expects on other chips alone (a dtype
# that the 310P lacks, say) need not exist here.
MIRRORED_SOC = "Ascend910B"


@dataclass(frozen=True)
class Plan:
    """What becomes of a row, and why it is not simply run.

    `action` is "run", "skip" (it says nothing about collops here) or "differs" (collops does
    something else than ATB, by intent: `instead`, if that is known). `excuse` says why a row that
    runs and expects an error may end without one; it then counts as skipped.

    Example:
        >>> Plan("run").reason
        ''
    """

    action: str
    reason: str = ""
    instead: Expectation | None = None
    excuse: str = ""


def plan_row(row: CsvRow, *, built: Collection[str] = BUILT) -> Plan:
    """Return what to do with a row, by the first of these rules that fits.

    Skipped: an operator that is none of collops' or is not built yet, quantised and MoE rows,
    tensors of format FRACTAL_NZ (unless the row expects its refusal), more ranks than MOST_RANKS
    (unless creation must fail). Then the rows of
    differences.DIFFERENCES; the others run, with an excuse where the row expects its error on other
    chips alone.

    Args:
        row: the row.
        built: the operators that can run, by the names of case files.

    Returns:
        The plan; its reason is empty for rows that run.

    Example:
        >>> plan_row(CsvRow("a.csv:2", 1, "x", "FillOperation", {})).reason
        'FillOperation is no operator of collops'
        >>> plan_row(CsvRow("a.csv:3", 2, "x", "AllGatherVOperation", {"rankSize": 2})).action
        'run'
    """
    if row.operator not in OPERATORS:
        return Plan("skip", f"{row.operator} is no operator of collops")
    if row.operator not in built:
        return Plan("skip", f"{row.operator} is not built yet")
    for is_outside, reason in _OUTSIDE:
        if is_outside(row):
            return Plan("skip", reason)
    known = difference_of(row)
    if known:
        return Plan("differs", known.reason, known.instead)
    return Plan("run", excuse=_ELSEWHERE if _fails_elsewhere_only(row) else "")


def _is_moe(row: CsvRow) -> bool:
    return row.operator == "LinearParallelOperation" and row.params.get("type", 0) in (5, 6)


# Others than these are no mode at all, and such a row runs.
_QUANTISED = {"LinearParallelOperation": range(4), "AllReduceOperation": range(1, 3)}


def _is_quantised(row: CsvRow) -> bool:
    mode = row.params.get("quantType")
    return isinstance(mode, int) and mode in _QUANTISED.get(row.operator, ())


def _has_nz_data(row: CsvRow) -> bool:
    refused = row.expected.name in ("ERROR_INVALID_TENSOR_INI_MATCH", "ERROR_INVALID_TENSOR_FORMAT")
    return not refused and any(t.format == "fractal_nz" for t in (*row.inputs, *row.outputs))


def _has_too_many_ranks(row: CsvRow) -> bool:
    return row.rank_size > MOST_RANKS and row.expected.stage != "create"


def _fails_elsewhere_only(row: CsvRow) -> bool:
    fails = row.expected.stage != ""
    return fails and bool(row.soc_versions) and MIRRORED_SOC not in row.soc_versions


_OUTSIDE: tuple[tuple[Callable[[CsvRow], bool], str], ...] = (
    (_is_moe, "MoE"),
    (_is_quantised, "quantised"),
    (_has_nz_data, "FRACTAL_NZ data"),
    (_has_too_many_ranks, f"more than {MOST_RANKS} ranks"),
)
_ELSEWHERE = "the expected error exists on another SoC alone"
