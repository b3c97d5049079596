"""Reads ATB's case files: a line of column names, then one case per line.

'|' separates columns, ';' the tensors of a column, ',' the dims of a shape; cells may be padded
with blanks. The columns are ATB's (CaseNum, CaseName, OpName, OpParam, InNum, ...); TestType,
TestLevel and FromModel are not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from ..data.words import nearest
from .csv_cells import NUMBER, read_row
from .csv_row import CsvRow, RowError

COLUMNS = (
    "CaseNum CaseName OpName OpParam InNum InDType InFormat InShape OutNum OutDType OutFormat "
    "OutShape DataGenType DataGenRange InTensorFile OutTensorFile TestType TestLevel FromModel "
    "SocVersion ExpectedError"
).split()
_OPTIONAL = set("DataGenType DataGenRange InTensorFile OutTensorFile TestType TestLevel".split())
_OPTIONAL |= {"FromModel", "SocVersion"}
# The least similarity (difflib's ratio) of a misspelt column's name and the right one.
_ALIKE = 0.85
_NUMBERS = rf"{NUMBER}(-{NUMBER})?"


def read_rows(path: Path) -> list[CsvRow]:
    """Return all rows of a case file.

    Raises:
        OSError: the file cannot be read.
        RowError: (a ValueError) for the first row that cannot be read.

    Example:
        >>> import tempfile
        >>> line = '7|one rank|AllGatherVOperation|{"rankSize": 1}|0||||0' + "|" * 12
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "cases.csv"
        ...     _ = file.write_text("|".join(COLUMNS) + "\\n" + line + "C:ERROR_INVALID_PARAM")
        ...     [row] = read_rows(file)
        >>> row.number, row.rank_size, row.expected.stage, row.expected.code
        (7, 1, 'create', 1)
    """
    rows = []
    for row in scan_rows(path):
        if isinstance(row, RowError):
            raise row
        rows.append(row)
    return rows


def scan_rows(path: Path) -> Iterator[CsvRow | RowError]:
    """Yield every row of a case file, a RowError in the place of one that cannot be read.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no text, or has no row.
        RowError: the line of column names cannot be used.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "cases.csv"
        ...     _ = file.write_text("|".join(COLUMNS) + "\\nx" + "|" * 20)
        ...     [row] = scan_rows(file)
        >>> str(row).endswith("cases.csv:2: column CaseNum is not a whole number, got 'x'")
        True
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8 text ({error.reason})") from None
    names: list[str] | None = None
    rows = 0
    for number, line in enumerate(lines, start=1):
        place = f"{path}:{number}"
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("|")]
        if names is None:
            names = _column_names(cells, place)
            continue
        rows += 1
        try:
            yield read_row(_by_name(names, cells, place), place)
        except RowError as problem:
            yield _identified(problem, dict(zip(names, cells, strict=False)))
    if names is None:
        raise ValueError(
            f"{path}: is empty; its first line must name the columns: {'|'.join(COLUMNS[:4])}|..."
        )
    if not rows:
        raise ValueError(f"{path}: has no row below the line of column names")


def selector(text: str) -> Callable[[int | None, str], bool]:
    """Return a test of a case's number and name: `text` is part of a name, or numbers.

    Raises:
        ValueError: a range that ends before it begins.

    Example:
        >>> chosen = selector("3,5-9")
        >>> [n for n in range(12) if chosen(n, "any")]
        [3, 5, 6, 7, 8, 9]
        >>> selector("bf16")(1, "gather_bf16"), selector("")(1, "gather")
        (True, True)
        >>> selector("1, 3 - 4")(4, "any"), selector("1 2")(12, "any")
        (True, False)
    """
    ranges = _ranges(text)
    if not ranges:
        return lambda _, name: text in name
    return lambda number, _: number is not None and any(number in each for each in ranges)


def check_filter(text: str, numbers: Iterable[int | None]) -> None:
    """Raise ValueError if a number, or a whole range, of a filter is that of no case.

    Example:
        >>> check_filter("1,9", [1, 2, 3])
        Traceback (most recent call last):
        ...
        ValueError: filter '1,9': no case has the number 9
    """
    known = {number for number in numbers if number is not None}
    for each in _ranges(text):
        if known.isdisjoint(each):
            one = f"the number {each.start}" if len(each) == 1 else "a number from {} to {}"
            words = one.format(each.start, each.stop - 1)
            raise ValueError(f"filter {text!r}: no case has {words}")


def _ranges(text: str) -> list[range]:
    """Return the numbers of a filter; none if it is part of a name."""
    numbers = re.sub(r"\s*([,-])\s*", r"\1", text.strip())
    if not re.fullmatch(rf"{_NUMBERS}(,{_NUMBERS})*", numbers):
        return []
    ranges = []
    for part in numbers.split(","):
        first, _, last = part.partition("-")
        ranges.append(range(int(first), int(last or first) + 1))
        if not ranges[-1]:
            raise ValueError(f"filter {text!r}: the range {part} ends before it begins")
    return ranges


def _column_names(cells: list[str], place: str) -> list[str]:
    for name in COLUMNS:
        if cells.count(name) > 1:
            raise RowError(place, name, "is named twice", "|".join(cells))
    for cell in cells:
        meant = nearest(cell, COLUMNS, _ALIKE) if cell not in COLUMNS else None
        if meant is not None:
            text = f"unknown column {cell!r}; did you mean {meant!r}?"
            raise RowError(place, meant, "is misspelt", cell, text)
    for name in COLUMNS:
        if name not in _OPTIONAL and name not in cells:
            raise RowError(place, name, "is missing among the column names", "|".join(cells))
    return cells


def _identified(problem: RowError, cells: Mapping[str, str]) -> RowError:
    """Return a problem with the row's number, name and operator, as far as they can be read."""
    number = cells.get("CaseNum", "")
    problem.number = int(number) if re.fullmatch(NUMBER, number) else None
    problem.name = cells.get("CaseName", "")
    problem.operator = cells.get("OpName", "").partition("_")[0]
    return problem


def _by_name(names: list[str], cells: list[str], place: str) -> dict[str, str]:
    if len(cells) != len(names):
        state, more = "is missing", len(cells) - len(names)
        if more > 0:
            state = f"is followed by {more} cell{'s' if more > 1 else ''} too many"
        problem = f"{state}: the row has {len(cells)} cells, the line of names {len(names)}"
        raise RowError(place, names[min(len(cells), len(names) - 1)], problem, cells[-1])
    return {**dict.fromkeys(COLUMNS, ""), **dict(zip(names, cells, strict=True))}
