"""Tables of cases for the command line."""

from __future__ import annotations

from collections.abc import Sequence

from ..operators.case import Case
from .csv_plan import plan_row
from .csv_row import CsvRow, RowError


def case_table(cases: Sequence[Case]) -> str:
    """Return golden's own cases as a table.

    Example:
        >>> case = Case("all_gather_v", "tiny", 2, "int8", (2, 1), (0, 2), ((2,), (1,)), (3, 3))
        >>> print(case_table([case]))
        case                  ranks  dtype  reduce  data   counts  rows of output
        all_gather_v.p2.tiny  2      int8   -       index  2 1     3 3
        1 case
    """
    head = ("case", "ranks", "dtype", "reduce", "data", "counts", "rows of output")
    rows = [
        (
            case.id,
            str(case.rank_size),
            case.dtype,
            case.op or "-",
            case.kind,
            " ".join(map(str, case.counts)) or "-",
            " ".join(map(str, case.rows)),
        )
        for case in cases
    ]
    return "\n".join([*_aligned([head, *rows]), _counted(len(cases), "case")])


def row_table(rows: Sequence[CsvRow | RowError]) -> str:
    """Return the rows of case files as a table: the expected end, and whether the row is run.

    Example:
        >>> row = CsvRow("a.csv:2", 1, "two ranks", "AllGatherVOperation", {"rankSize": 2})
        >>> print(row_table([row]))
        case  name       operator             ranks  expects   plan
        1     two ranks  AllGatherVOperation  2      NO_ERROR  run
        1 row: 1 run
    """
    lines: list[Sequence[str]] = [("case", "name", "operator", "ranks", "expects", "plan")]
    plans: list[str] = []
    for row in rows:
        if isinstance(row, RowError):
            plans.append("malformed")
            number = "" if row.number is None else str(row.number)
            cells = (number, row.name, row.operator, "", "")
            lines.append((*cells, f"malformed: {row}"))
            continue
        plan = plan_row(row)
        plans.append(plan.action)
        words = f"{plan.action}: {plan.reason}" if plan.reason else plan.action
        words += f", or skip: {plan.excuse}" if plan.excuse else ""
        ranks = str(row.rank_size or "-")
        lines.append((str(row.number), row.name, row.operator, ranks, str(row.expected), words))
    counts = [f"{plans.count(word)} {word}" for word in dict.fromkeys(plans)]
    return "\n".join([*_aligned(lines), f"{_counted(len(rows), 'row')}: {', '.join(counts)}"])


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    return [line.rstrip() for line in lines]
