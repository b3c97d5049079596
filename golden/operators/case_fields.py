"""The fields of a case as JSON has them: which values they can have, and lists as tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..data.dtypes import DTYPES


def check_fields(fields: Mapping[str, Any], operators: Sequence[str]) -> None:
    """Raise TypeError for the first field that no case can have, such as a rank_size of null.

    Example:
        >>> check_fields({"rank_size": None}, ("broadcast",))
        Traceback (most recent call last):
        ...
        TypeError: rank_size is no whole number from 1, got None
    """
    known = {"operator": operators, "dtype": DTYPES}
    for name, words in known.items():
        if name in fields and fields[name] not in words:
            raise TypeError(f"{name} is none of {', '.join(words)}, got {fields[name]!r}")
    for name in ("rank_size", "seed", "columns", "root", "peer"):
        least = 1 if name == "rank_size" else 0
        if name in fields and not _is_count(fields[name], least):
            raise TypeError(f"{name} is no whole number from {least}, got {fields[name]!r}")
    if not isinstance(fields.get("transpose", False), bool):
        raise TypeError(f"transpose is neither true nor false, got {fields['transpose']!r}")
    for name in ("counts", "displs", "rdispls", "rows", "x_shapes"):
        if name in fields and not _are_counts(fields[name], nested=name == "x_shapes"):
            raise TypeError(f"{name} is no list of whole numbers, got {fields[name]!r}")


def frozen(value: Any) -> Any:
    """Return lists as tuples, which JSON does not have.

    Example:
        >>> frozen([1, [2, 3]])
        (1, (2, 3))
    """
    return tuple(frozen(item) for item in value) if isinstance(value, list) else value


def _is_count(value: Any, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _are_counts(value: Any, *, nested: bool) -> bool:
    if not isinstance(value, (list, tuple)):
        return False
    return all(_are_counts(part, nested=False) if nested else _is_count(part) for part in value)
