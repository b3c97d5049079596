"""DIFFERENCES, the patterns of rows in which collops differs from ATB by intent."""

from __future__ import annotations

import math
from itertools import accumulate

from ..data.shares import first_overlap
from ..operators.linear_parallel.entry import linear_call
from ..operators.linear_parallel.experts import received_rows, sent_rows
from ..operators.linear_parallel.groups import ALL_TO_ALL_EXPERTS
from ..operators.table import OPERATIONS
from .all_to_all_differences import ALL_TO_ALL_DIFFERENCES
from .csv_row import MOST_RANKS, CsvRow, Expectation
from .difference import Difference, passed_numbers
from .row_inputs import rank_input

_GATHER, _SCATTER = "AllGatherVOperation", "ReduceScatterVOperation"
_LINEAR = "LinearParallelOperation"
_ALL_TO_ALL, _MESSAGES = "AllToAllOperation", ("SendOperation", "RecvOperation")
_BY_STRUCT, _BY_TENSORS = "AllToAllVOperation", "AllToAllVV2Operation"
# AllGather is not in this list: its output would have a dim of 0 after the first one.
_EVEN = ("ReduceScatterOperation", "AllReduceOperation", "BroadcastOperation", _ALL_TO_ALL)

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
    dtype, operator = row.inputs[0].dtype, OPERATIONS[row.operator]
    others = [tensor.dtype for tensor in row.inputs[1:]]
    return (
        dtype in operator.more_dtypes(row.params)
        and all(tensor.format == "nd" for tensor in (*row.inputs, *row.outputs))
        and len(row.inputs) in operator.input_numbers(row.params)
        and others == [one.dtype or dtype for one in operator.inputs_of(row.params)[: len(others)]]
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
    return passed_numbers(row, position, length) if len(row.inputs) == 5 else None


def _numbers(row: CsvRow) -> tuple[list[int], list[int]]:
    """Return counts and displacements of an AllGatherV row; empty if they are unknown."""
    counts, displs = _values(row, 2, row.rank_size), _values(row, 3, row.rank_size)
    return ([], []) if counts is None or displs is None else (counts, displs)


def _has_overlap(row: CsvRow) -> bool:
    counts, displs = _numbers(row)
    return not row.expected.stage and first_overlap(displs, counts) is not None


def _refuses_gaps(row: CsvRow) -> bool:
    """Whether ATB refuses blocks only because one begins later than the ones before it end."""
    if row.expected != _BAD_COUNTS:
        return False
    (counts, displs), own = _numbers(row), _values(row, 1, 1)
    if not counts or not row.outputs or own is None or own[0] != counts[0]:
        return False
    if not sum(counts) or min(counts) < 0 or min(displs) < 0:
        return False
    ends = [start + count for start, count in zip(displs, counts, strict=True)]
    late = any(end > most for end, most in zip(ends, accumulate(counts), strict=True))
    inside = max(ends) <= math.prod(row.outputs[0].shape)
    fits = inside and own[0] <= math.prod(row.inputs[0].shape)
    return late and fits and first_overlap(displs, counts) is None


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


def _has_experts(row: CsvRow) -> bool:
    """Whether a row of LinearParallel must work, and has experts and all inputs."""
    numbers = OPERATIONS[row.operator].input_numbers(row.params)
    return (
        not row.expected.stage and row.params.get("type") in (5, 6) and len(row.inputs) in numbers
    )


def _x_misfits_experts(row: CsvRow) -> bool:
    if not _has_experts(row):
        return False
    x, weight = (tensor.shape for tensor in row.inputs[:2])
    at = -1 if row.params.get("transWeight", True) else -2
    return len(x) == 2 and len(weight) == 3 and x[1] != weight[at]


def _drops_rows(row: CsvRow) -> bool:
    """Whether a rank has more rows than its x, or than maxOutputSize."""
    if not _has_experts(row):
        return False
    call, matrix, most = linear_call(row.params, row.rank_size), *row.inputs[-2:]
    if not matrix.can_be_made or not row.inputs[0].shape or len(most.shape) != 1:
        return False
    try:
        tokens = rank_input(row, 0, len(row.inputs) - 2)
        pairs = [(sent_rows(call, tokens, r), received_rows(call, tokens, r)) for r in _ranks(row)]
    except (OSError, ValueError):
        return False
    limits = (row.inputs[0].shape[0], most.shape[0])
    limits = limits if call.type == ALL_TO_ALL_EXPERTS else limits[::-1]
    return any(sent > limits[0] or received > limits[1] for sent, received in pairs)


def _ranks(row: CsvRow) -> range:
    return range(min(row.rank_size, MOST_RANKS))


def _has_int8_groups(row: CsvRow) -> bool:
    """Whether a row that must work has an int8 x and scales per group, which ATB does not check."""
    kinds = row.params.get("type", 0), row.params.get("quantType")
    is_int8 = bool(row.inputs) and row.inputs[0].dtype == "int8"
    return not row.expected.stage and is_int8 and kinds in ((1, 2), (2, 2), (4, 2))


DIFFERENCES = (
    Difference(
        tuple(OPERATIONS),
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
    # Without rows on any rank all counts are 0, which the next step refuses.
    Difference(
        (_GATHER,),
        _refuses_no_rows,
        "a rank may have no rows",
        _BAD_COUNTS,
        pattern="an error for an x without rows",
    ),
    # The end of such a row depends on the counts.
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
        _refuses_gaps,
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
        pattern="an error for a rankSize that is not a power of two, with lcoc",
    ),
    Difference(
        (_LINEAR,),
        _ignores_type,
        "type decides on every backend",
        None,
        pattern="hccl or lccl with the output of type 0, and another type",
    ),
    Difference(
        (_LINEAR,),
        _has_int8_groups,
        "an int8 x has no scale per group",
        _BAD_COUNTS,
        pattern="NO_ERROR for an int8 x with scales per group, of types 1, 2 and 4",
    ),
    Difference(
        (_LINEAR,),
        _x_misfits_experts,
        "x must fit the weight",
        Expectation("infer_shape", "ERROR_INVALID_TENSOR_DIM"),
        pattern="NO_ERROR for an x that does not fit the weight, of types 5 and 6",
    ),
    Difference(
        (_LINEAR,),
        _drops_rows,
        "rows that do not fit are an error",
        Expectation("execute", "ERROR_INVALID_TENSOR_DIM"),
        pattern="NO_ERROR although rows do not fit x or maxOutputSize, of types 5 and 6",
    ),
    *ALL_TO_ALL_DIFFERENCES,
)
