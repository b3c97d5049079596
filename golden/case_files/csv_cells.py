"""Reads the cells of one row of a case file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from ..data.acl_types import ERRORS, FORMATS, dtype_from_word
from ..data.generators import DEFAULT_RANGE
from ..data.words import nearest
from ..operators.table import OPERATIONS
from .case_fields import distinct_fields
from .csv_row import STAGES, CsvRow, Expectation, RowError, RowTensor

# In the cells of outputs: whatever the operator has.
_RESERVED = "reserved"
GENERATORS = ("one", "zero", "random", "customize")
# The most digits of a number that always fits into 64 bits.
_MOST_DIGITS = 18
_TOO_LARGE = 2**63
# Rows whose counts are not those of the even split.
_UNEVEN = "examples/golden/uneven"
NUMBER = rf"\d{{1,{_MOST_DIGITS}}}"
# The least similarity (difflib's ratio) of a misspelt operator and the right one. ATB has other
# operators with similar names: ReduceOperation and AllReduceOperation have 0.91.
_ALIKE = 0.92


def meant_operation(word: str) -> str | None:
    """Return the operator that an unknown word probably means, in any case, or None.

    Example:
        >>> meant_operation("AllReduceOpration"), meant_operation("ReduceOperation")
        ('AllReduceOperation', None)
    """
    return nearest(word, OPERATIONS, _ALIKE)


def read_row(cells: Mapping[str, str], place: str) -> CsvRow:
    """Return a row by its cells, of which every column has one.

    Raises:
        RowError: (a ValueError) for the first cell that cannot be read.

    Example:
        >>> cells = {"CaseNum": "7", "CaseName": "x", "OpName": "FillOperation"}
        >>> read_row({**cells, "SocVersion": "", "ExpectedError": "NO_ERROR"}, "a.csv:2").number
        7
    """
    number = _whole_number(cells, "CaseNum", place)
    operator = _operator(cells, place)
    known = operator in OPERATIONS
    expected = _expectation(cells, place)
    has_tensors = known and expected.stage != "create"
    infers = has_tensors and _infers_outputs(cells, place)
    return CsvRow(
        place=place,
        number=number,
        name=cells["CaseName"],
        operator=operator,
        params=_params(cells, place) if known else {},
        inputs=_tensors(cells, "In", place) if has_tensors else (),
        outputs=_tensors(cells, "Out", place) if has_tensors and not infers else (),
        expected=expected,
        soc_versions=tuple(s.strip() for s in cells["SocVersion"].split(",") if s.strip()),
        result_file=_result_file(cells, place) if has_tensors and not infers else "",
        infers_outputs=infers,
    )


def _operator(cells: Mapping[str, str], place: str) -> str:
    # ATB's tool appends suffixes such as _0_1 to the operators of different cases.
    operator = cells["OpName"].partition("_")[0]
    if not operator:
        raise RowError(place, "OpName", "is empty: name an operator", "")
    meant = meant_operation(operator) if operator not in OPERATIONS else None
    if meant is not None:
        problem = f"is not an operator: did you mean {meant}"
        raise RowError(place, "OpName", problem, cells["OpName"])
    return operator


def _whole_number(cells: Mapping[str, str], column: str, place: str) -> int:
    if not re.fullmatch(NUMBER, cells[column]):
        long = re.fullmatch(r"\d+", cells[column])
        problem = f"has more than {_MOST_DIGITS} digits" if long else "is not a whole number"
        raise RowError(place, column, problem, cells[column])
    return int(cells[column])


def _expectation(cells: Mapping[str, str], place: str) -> Expectation:
    text = cells["ExpectedError"]
    if text == "NO_ERROR":
        return Expectation()
    letter, colon, name = (part.strip() for part in text.partition(":"))
    if letter not in STAGES or not colon or name not in ERRORS or name == "NO_ERROR":
        problem = f"is neither NO_ERROR nor one of {', '.join(f'{c}:' for c in STAGES)} and a code"
        raise RowError(place, "ExpectedError", problem, text)
    return Expectation(STAGES[letter], name)


def _params(cells: Mapping[str, str], place: str) -> dict[str, Any]:
    try:
        params = json.loads(
            cells["OpParam"], parse_int=_json_number, object_pairs_hook=distinct_fields
        )
    except RecursionError:
        raise RowError(place, "OpParam", "is nested too deeply", cells["OpParam"]) from None
    except ValueError as error:
        raise RowError(place, "OpParam", f"is not JSON ({error})", cells["OpParam"]) from None
    if not isinstance(params, dict):
        raise RowError(place, "OpParam", "is not a JSON object", cells["OpParam"])
    return params


def _json_number(text: str) -> int:
    # Numbers up to the largest unsigned 64 bits are read, because rows test their refusal.
    if len(text) > _MOST_DIGITS + 3:
        raise ValueError(f"a number of {len(text)} digits does not fit into 64 bits")
    return int(text)


def _infers_outputs(cells: Mapping[str, str], place: str) -> bool:
    """Return whether a cell of the outputs is reserved, so that infer_shape says what they are."""
    columns = ("OutNum", "OutDType", "OutFormat", "OutShape")
    reserved = [name for name in columns if _RESERVED in cells[name].lower()]
    if reserved and cells["OutTensorFile"]:
        problem = f"names a file, but {reserved[0]} is {_RESERVED}"
        raise RowError(place, "OutTensorFile", problem, cells["OutTensorFile"])
    return bool(reserved)


def _tensors(cells: Mapping[str, str], side: str, place: str) -> tuple[RowTensor, ...]:
    """Return the inputs (side In) or outputs (side Out) of a row."""
    count = _whole_number(cells, f"{side}Num", place)
    dtypes = _entries(cells, f"{side}DType", count, place)
    forms = _entries(cells, f"{side}Format", count, place)
    shapes = _entries(cells, f"{side}Shape", count, place)
    files = _files(cells, side, max(count, 1), place)
    # A row may name fewer generators than inputs, and ATB's own rows name more.
    generators = _padded(cells["DataGenType"] if side == "In" else "", count)
    ranges = _padded(cells["DataGenRange"] if side == "In" else "", count)
    return tuple(
        RowTensor(
            dtype=_dtype(dtypes[i], f"{side}DType", place),
            shape=_shape(shapes[i], f"{side}Shape", place),
            format=_one_of(forms[i].lower(), FORMATS, f"{side}Format", place),
            generator=_one_of(generators[i] or "customize", GENERATORS, "DataGenType", place),
            range=_range(ranges[i], place),
            file=files[i],
        )
        for i in range(count)
    )


def _entries(cells: Mapping[str, str], column: str, count: int, place: str) -> list[str]:
    parts = [part.strip() for part in cells[column].split(";")]
    while parts and not parts[-1]:
        parts.pop()
    if len(parts) != count:
        problem = f"names {len(parts)} tensors where the row has {count}"
        raise RowError(place, column, problem, cells[column])
    return parts


def _files(cells: Mapping[str, str], side: str, count: int, place: str) -> list[str]:
    column = f"{side}TensorFile"
    names = [name.strip() for name in cells[column].split(";")]
    if any(names[count:]):
        raise RowError(place, column, f"names more files than {count}", cells[column])
    return _padded(cells[column], count)


def _result_file(cells: Mapping[str, str], place: str) -> str:
    """Return the file of OutTensorFile that belongs to no output, because there is none."""
    has_outputs = _whole_number(cells, "OutNum", place) > 0
    return "" if has_outputs else _files(cells, "Out", 1, place)[0]


def _padded(cell: str, count: int) -> list[str]:
    parts = [part.strip() for part in cell.split(";")]
    return (parts + [""] * count)[:count]


def _one_of(word: str, known: Any, column: str, place: str) -> str:
    if word not in known:
        raise RowError(place, column, f"has a word that is not one of {', '.join(known)}", word)
    return word


def _dtype(word: str, column: str, place: str) -> str:
    try:
        return dtype_from_word(word)
    except ValueError as error:
        raise RowError(place, column, "", word, f"column {column}: {error}") from None


def _shape(text: str, column: str, place: str) -> tuple[int, ...]:
    dims = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"-?\d+", dim) for dim in dims):
        raise RowError(place, column, "has a dim that is not a whole number", text)
    # Python refuses to convert thousands of digits.
    shape = tuple(int(dim) if len(dim) <= _MOST_DIGITS + 2 else _TOO_LARGE for dim in dims)
    if not all(abs(dim) < _TOO_LARGE for dim in shape):
        raise RowError(place, column, "has a dim that does not fit into 64 bits", text)
    return shape


def _range(text: str, place: str) -> tuple[float, float]:
    if not text:
        return DEFAULT_RANGE
    parts = text.split(",")
    try:
        low, high = (float(part) for part in parts)
    except ValueError:
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high)):
        counts = all(part.strip().isdecimal() for part in parts)
        hint = f"; other counts: a .npy in InTensorFile, as in {_UNEVEN}" if counts else ""
        raise RowError(place, "DataGenRange", f"is not a range LOW,HIGH{hint}", text)
    # Some of ATB's rows have ranges with the higher end first.
    return min(low, high), max(low, high)
