"""Where collops differs from ATB by intent: patterns of rows, what ATB does, what collops does."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise

from ..data.formats import DTYPES
from .all_to_all_differences import ALL_TO_ALL_DIFFERENCES
from .csv_row import CsvRow, Expectation
from .difference import Difference
from .row_case import rank_input

_GATHER, _SCATTER = "AllGatherVOperation", "ReduceScatterVOperation"
_LINEAR = "LinearParallelOperation"
_ALL_TO_ALL, _MESSAGES = "AllToAllOperation", ("SendOperation", "RecvOperation")
_BY_STRUCT, _BY_TENSORS = "AllToAllVOperation", "AllToAllVV2Operation"
# Of a gather the output would have a dim of 0 behind its first one, so it is none of these.
_EVEN = ("ReduceScatterOperation", "AllReduceOperation", "BroadcastOperation", _ALL_TO_ALL)

# What collops accepts as x beside ATB's dtypes (docs/operators).
_MORE_DTYPES = {
    _GATHER: {"float64", "uint8", "bool"},
    _SCATTER: {"float32", "float64", "uint8", "int16", "int32", "int64"},
    _LINEAR: {"float32"},
    "AllGatherOperation": {"float64", "uint8", "bool"},
    "ReduceScatterOperation": {"float64", "uint8"},
    "AllReduceOperation": {"float64", "uint8"},
    "BroadcastOperation": {"float64", "uint8", "bool"},
    _ALL_TO_ALL: {"float64", "uint8", "bool"},
    _BY_STRUCT: {"float64", "uint8", "bool"},
    _BY_TENSORS: {"float64", "uint8", "bool"},
    **{operator: {"float64", "uint8", "bool"} for operator in _MESSAGES},
}
_MORE_TO_TRANSPOSE = set(DTYPES) - {"float16", "bfloat16", "int8"}
_ACCEPTED = Expectation()
_BAD_COUNTS = Expectation("setup", "ERROR_INVALID_PARAM")


def difference_of(row: CsvRow) -> Difference | None:
    """Return the first known difference that a row shows, or None.

    Example:
        >>> difference_of(CsvRow("a.csv:2", 1, "x", "AllGatherVOperation", {})) is None
        True
    """
    for known in DIFFERENCES:
        if row.operator in known.operators and known.matches(row):
            return known
    return None


def _refuses_dtype_of_x(row: CsvRow) -> bool:
    """Whether the row expects that x's dtype is refused, which collops accepts."""
    if row.expected.name != "ERROR_INVALID_TENSOR_INI_MATCH" or not row.inputs:
        return False
    dtype = row.inputs[0].dtype
    others = [tensor.dtype for tensor in row.inputs[1:]]
    expected = [dtype] * len(others) if row.operator == _LINEAR else []
    if row.operator in (_GATHER, _SCATTER):
        expected = ["int64", "int64", "int64", "float16"]
    if row.operator == _BY_TENSORS:
        expected = ["int64", "int64", "int64", "int64", "int8"]
    transposes = row.operator == _ALL_TO_ALL and bool(row.params.get("transpose"))
    return (
        dtype in (_MORE_TO_TRANSPOSE if transposes else _MORE_DTYPES[row.operator])
        and all(tensor.format == "nd" for tensor in (*row.inputs, *row.outputs))
        and others == expected
        and all(tensor.dtype == dtype for tensor in row.outputs)
    )


def _refuses_no_rows(row: CsvRow) -> bool:
    """Whether the row expects that an x without rows is refused."""
    return (
        row.expected.name == "ERROR_INVALID_TENSOR_SIZE"
        and bool(row.inputs)
        and row.inputs[0].shape[:1] == (0,)
        and all(dim > 0 for dim in row.inputs[0].shape[1:])
    )


def _values(row: CsvRow, position: int, length: int) -> list[int] | None:
    """Return the counts that rank 0 passes, None where they cannot be known or do not fit."""
    if len(row.inputs) != 5 or not row.inputs[position].can_be_made:
        return None
    if not row.inputs[position].file and row.inputs[position].shape != (length,):
        return None
    try:
        values = rank_input(row, 0, position)
    except (OSError, ValueError):
        return None
    return [int(value) for value in values] if values.shape == (length,) else None


def _blocks(row: CsvRow) -> list[tuple[int, int]]:
    """Return offset and end of an AllGatherV row's blocks; none where they cannot be known."""
    counts, displs = _values(row, 2, row.rank_size), _values(row, 3, row.rank_size)
    if counts is None or displs is None:
        return []
    return [(start, start + count) for count, start in zip(counts, displs, strict=True)]


def _overlap(blocks: list[tuple[int, int]]) -> bool:
    filled = sorted(block for block in blocks if block[0] < block[1])
    return any(end > start for (_, end), (start, _) in pairwise(filled))


def _has_overlap(row: CsvRow) -> bool:
    return not row.expected.stage and _overlap(_blocks(row))


def _refuses_a_layout(row: CsvRow) -> bool:
    """Whether ATB refuses blocks only because one begins later than the ones before it end."""
    if row.expected != _BAD_COUNTS:
        return False
    blocks, own, counts = _blocks(row), _values(row, 1, 1), _values(row, 2, row.rank_size)
    if not blocks or not row.outputs or counts is None or own is None or own[0] != counts[0]:
        return False
    if not sum(counts) or min(counts) < 0 or min(start for start, _ in blocks) < 0:
        return False
    ends = list(accumulate(counts))
    late = any(
        start + count > end for (start, _), count, end in zip(blocks, counts, ends, strict=True)
    )
    inside = max(end for _, end in blocks) <= math.prod(row.outputs[0].shape)
    return late and inside and not _overlap(blocks) and own[0] <= math.prod(row.inputs[0].shape)


def _counts_contradict(row: CsvRow) -> bool:
    """Whether recvCount is not sendCounts[rank], which ATB leaves to HCCL."""
    if row.expected.stage:
        return False
    counts, own = _values(row, 1, row.rank_size), _values(row, 3, 1)
    return counts is not None and own is not None and own[0] != counts[0]


def _refuses_rank_size(row: CsvRow) -> bool:
    """Whether lcoc refuses a number of ranks that is no power of two."""
    size = row.rank_size
    return (
        row.expected == Expectation("create", "ERROR_INVALID_PARAM")
        and row.params.get("backend") == "lcoc"
        and size > 2
        and size & (size - 1) != 0
    )


def _ignores_type(row: CsvRow) -> bool:
    """Whether hccl or lccl do type 0 whatever the row's type is, and the output has that shape."""
    if row.expected.stage or row.params.get("backend", "hccl") not in ("hccl", "lccl"):
        return False
    if row.params.get("type", 0) not in (1, 2, 4) or len(row.inputs) < 2 or not row.outputs:
        return False
    dims = row.params.get("twoDimTPInfo")
    square = isinstance(dims, dict) and dims.get("agDim") == dims.get("rsDim")
    same = row.params["type"] == 4 and square
    return not same and row.outputs[0].shape[:-1] == row.inputs[0].shape[:-1]


DIFFERENCES = (
    Difference(
        tuple(_MORE_DTYPES),
        _refuses_dtype_of_x,
        "collops takes more dtypes than ATB",
        pattern="an error for x's dtype",
    ),
    Difference(
        (_SCATTER, _LINEAR, *_EVEN, *_MESSAGES),
        _refuses_no_rows,
        "a rank may have no rows",
        pattern="an error for an x without rows",
    ),
    # With no row on any rank all counts are 0, which the next step refuses.
    Difference(
        (_GATHER,),
        _refuses_no_rows,
        "a rank may have no rows",
        _BAD_COUNTS,
        pattern="an error for an x without rows",
    ),
    # What the next steps say depends on the counts.
    Difference(
        (_BY_STRUCT, _BY_TENSORS),
        _refuses_no_rows,
        "a rank may have no rows",
        None,
        pattern="an error for an x without rows",
    ),
    Difference(
        (_GATHER,),
        _has_overlap,
        "blocks must not overlap",
        _BAD_COUNTS,
        pattern="NO_ERROR although blocks overlap",
    ),
    Difference(
        (_GATHER,),
        _refuses_a_layout,
        "blocks may leave gaps and lie in any order",
        pattern="an error for a displacement above the sum of the counts before it",
    ),
    Difference(
        (_SCATTER,),
        _counts_contradict,
        "recvCount must be sendCounts[rank]",
        _BAD_COUNTS,
        pattern="NO_ERROR although recvCount is not sendCounts[rank]",
    ),
    Difference(
        (_LINEAR,),
        _refuses_rank_size,
        "lcoc takes any number of ranks",
        pattern="an error for a rankSize that is no power of two, with lcoc",
    ),
    Difference(
        (_LINEAR,),
        _ignores_type,
        "type decides on every backend",
        None,
        pattern="hccl or lccl with the output of type 0, and another type",
    ),
    *ALL_TO_ALL_DIFFERENCES,
)
