"""Converts a case to fields of JSON and back, and checks their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from ..data.dtypes import DTYPES
from ..operators.case import Case
from ..operators.linear_parallel.groups import LinearParallel
from ..operators.table import OPERATORS

# Fields that most cases do not use; they are written only if they are set.
_RARE = {"root": 0, "peer": 0, "transpose": False, "rdispls": (), "quant_type": 0}
_RARE_OF_LINEAR = {
    "quant_type": -1,
    "quant_group_size": 0,
    "out_dtype": "",
    "has_bias": True,
    "local_experts": 1,
    "ep_size": 1,
    "tp_size": 1,
    "sum_leaves": 0,
    "sum_columns": (),
}


def fields_of(case: Case) -> dict[str, Any]:
    """Return the fields of a case as JSON values; `linear` and `columns` only if they are set.

    Example:
        >>> case = Case("all_gather_v", "tiny", 2, "int8", (2, 1), (0, 2), ((2,), (1,)), (3, 3))
        >>> list(fields_of(case))[-3:], case_of(fields_of(case)) == case
        (['op', 'kind', 'seed'], True)
    """
    fields = asdict(case)
    if case.linear is None:
        del fields["linear"], fields["columns"]
    for some, rare in ((fields, _RARE), (fields.get("linear", {}), _RARE_OF_LINEAR)):
        for name, usual in rare.items():
            if some.get(name) == usual:
                del some[name]
    return fields


def case_of(fields: Mapping[str, Any]) -> Case:
    """Return the case that fields_of described.

    Raises:
        TypeError: a field is missing or unknown, or has an invalid value.

    Example:
        >>> case_of({"rank_size": None})
        Traceback (most recent call last):
        ...
        TypeError: rank_size is not a whole number from 1, got None
    """
    _check(fields)
    values = {key: _frozen(value) for key, value in fields.items()}
    if values.get("linear") is not None:
        linear = {key: _frozen(value) for key, value in values["linear"].items()}
        values["linear"] = LinearParallel(**linear)
    return Case(**values)


def distinct_fields(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object that json reads; json itself would keep the last of equal keys.

    Raises:
        ValueError: a key is given twice.

    Example:
        >>> distinct_fields([("rank", 0), ("rank", 1)])
        Traceback (most recent call last):
        ...
        ValueError: rank is given twice in one object
    """
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields:
            raise ValueError(f"{key} is given twice in one object")
        fields[key] = value
    return fields


def _check(fields: Mapping[str, Any]) -> None:
    """Raise TypeError for the first field with an invalid value, such as a rank_size of null."""
    known = {"operator": tuple(OPERATORS), "dtype": DTYPES}
    for name, words in known.items():
        if name in fields and fields[name] not in words:
            raise TypeError(f"{name} is not one of {', '.join(words)}, got {fields[name]!r}")
    for name in ("rank_size", "seed", "columns", "root", "peer", "quant_type"):
        least = 1 if name == "rank_size" else 0
        if name in fields and not _is_count(fields[name], least):
            raise TypeError(f"{name} is not a whole number from {least}, got {fields[name]!r}")
    if not isinstance(fields.get("transpose", False), bool):
        raise TypeError(f"transpose is neither true nor false, got {fields['transpose']!r}")
    for name in ("counts", "displs", "rdispls", "rows", "x_shapes"):
        if name in fields and not _are_counts(fields[name], nested=name == "x_shapes"):
            raise TypeError(f"{name} is not a list of whole numbers, got {fields[name]!r}")


def _frozen(value: Any) -> Any:
    """Return lists as tuples, which JSON does not have."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _is_count(value: Any, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _are_counts(value: Any, *, nested: bool) -> bool:
    if not isinstance(value, (list, tuple)):
        return False
    return all(_are_counts(part, nested=False) if nested else _is_count(part) for part in value)
