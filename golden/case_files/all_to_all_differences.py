"""Where AllToAll, AllToAllV and AllToAllVV2 differ from ATB by intent.

Example:
    >>> [known.reason for known in ALL_TO_ALL_DIFFERENCES if known.instead is None]
    ['transpose takes every size']
"""

from __future__ import annotations

import math
from typing import Any

from ..data.exchange import COUNT_LISTS
from ..data.shares import first_overlap
from ..operators.operator import is_per_rank
from .csv_row import CsvRow, Expectation
from .difference import Difference, passed_numbers

_BAD_STRUCT = Expectation("create", "ERROR_INVALID_PARAM")
_BAD_SHAPE = Expectation("infer_shape", "ERROR_INVALID_TENSOR_DIM")
_BAD_NUMBERS = Expectation("setup", "ERROR_INVALID_PARAM")


def _refuses_odd_ranks(row: CsvRow) -> bool:
    """Whether lccl refuses an odd number of ranks."""
    odd = row.rank_size > 2 and row.rank_size % 2 == 1
    return row.expected == _BAD_STRUCT and row.params.get("backend") == "lccl" and odd


def _refuses_size(row: CsvRow) -> bool:
    """Whether x is refused for its size alone, with transpose: P divides its columns."""
    if row.expected != _BAD_SHAPE or not row.params.get("transpose") or not row.inputs:
        return False
    shape = row.inputs[0].shape
    return len(shape) == 2 and row.rank_size > 0 and shape[1] % row.rank_size == 0


def _drops_remainder(row: CsvRow) -> bool:
    """Whether ATB accepts an x that the ranks cannot share evenly, and drops the remainder."""
    if row.expected.stage or row.params.get("transpose") or not row.inputs or not row.rank_size:
        return False
    return math.prod(row.inputs[0].shape) % row.rank_size != 0


def _accepts_overlap(row: CsvRow) -> bool:
    """Whether ATB accepts blocks that share an element of the output."""
    lists = None if row.expected.stage else _lists(row)
    if lists is None:
        return False
    return first_overlap(lists["rdispls"], lists["recvCounts"]) is not None


def _refuses_outside_as_param(row: CsvRow) -> bool:
    """Whether ATB's code for a slice or block past its tensor, or a wrong sum, is INVALID_PARAM."""
    lists = _lists(row) if row.expected == _BAD_NUMBERS else None
    if lists is None:
        return False
    x, length = math.prod(row.inputs[0].shape), row.inputs[5].shape[0]
    sent = zip(lists["sdispls"], lists["sendCounts"], strict=True)
    received = zip(lists["rdispls"], lists["recvCounts"], strict=True)
    return (
        any(start + count > x for start, count in sent)
        or any(start + count > length for start, count in received)
        or sum(lists["recvCounts"]) != length
    )


def _refuses_length_as_param(row: CsvRow) -> bool:
    """Whether ATB checks only at set-up that a count tensor has rankSize numbers."""
    if row.expected != _BAD_NUMBERS or len(row.inputs) != 6:
        return False
    counts = [tensor.shape for tensor in row.inputs[1:5]]
    return all(len(shape) == 1 for shape in counts) and any(
        shape != (row.rank_size,) for shape in counts
    )


def _lists(row: CsvRow) -> dict[str, list[int]] | None:
    """Return the four lists of rank 0, None if they are unknown or have a wrong length."""
    ranks = row.rank_size
    lists: dict[str, Any] = {}
    if row.operator == "AllToAllVOperation":
        lists = {name: row.params.get(name) for name in COUNT_LISTS}
        lists = {name: given[0] if is_per_rank(given) else given for name, given in lists.items()}
    elif len(row.inputs) == 6 and len(row.inputs[5].shape) == 1:
        positions = enumerate(COUNT_LISTS, start=1)
        lists = {name: passed_numbers(row, at, ranks) for at, name in positions}
    fit = all(isinstance(numbers, list) and len(numbers) == ranks for numbers in lists.values())
    plain = fit and all(isinstance(n, int) for numbers in lists.values() for n in numbers)
    return lists if plain and lists else None


ALL_TO_ALL_DIFFERENCES = (
    Difference(
        ("AllToAllOperation",),
        _refuses_odd_ranks,
        "lccl takes any number of ranks",
        pattern="an error for an odd rankSize, with lccl",
    ),
    # Rows of this pattern are not run, because their tensors are large.
    Difference(
        ("AllToAllOperation",),
        _refuses_size,
        "transpose takes every size",
        None,
        pattern="an error for x's size, with transpose",
    ),
    Difference(
        ("AllToAllOperation",),
        _drops_remainder,
        "rankSize must divide x",
        _BAD_SHAPE,
        pattern="NO_ERROR although rankSize does not divide x",
    ),
    Difference(
        ("AllToAllVOperation",),
        _accepts_overlap,
        "blocks must not overlap",
        Expectation("infer_shape", "ERROR_INVALID_PARAM"),
        pattern="NO_ERROR although blocks overlap",
    ),
    Difference(
        ("AllToAllVV2Operation",),
        _accepts_overlap,
        "blocks must not overlap",
        _BAD_NUMBERS,
        pattern="NO_ERROR although blocks overlap",
    ),
    Difference(
        ("AllToAllVV2Operation",),
        _refuses_length_as_param,
        "the length of counts is a matter of infer_shape",
        _BAD_SHAPE,
        pattern="S:ERROR_INVALID_PARAM for the length of a count tensor",
    ),
    Difference(
        ("AllToAllVV2Operation",),
        _refuses_outside_as_param,
        "what does not fit a tensor is ERROR_INVALID_TENSOR_DIM",
        Expectation("setup", "ERROR_INVALID_TENSOR_DIM"),
        pattern="S:ERROR_INVALID_PARAM for a slice or block past the end, or another sum",
    ),
)
