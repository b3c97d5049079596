"""The call of each rank in a row of a case file, and its expected results.

A runner needs `rank_params` and `row_inputs.rank_inputs` for a call, `expected_outputs` and
`row_bounds` for its results, `row.expected` for its error, `row_layout` to explain a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..data.bounds import Bound
from ..data.dtypes import Array
from ..operators.operator import (
    NoListError,
    is_per_rank,
    own_list,
)
from ..operators.output_layout import OutputLayout
from ..operators.table import OPERATIONS, OPERATORS
from .csv_row import CsvRow, RowTensor
from .row_inputs import from_file


def rank_params(row: CsvRow, rank: int) -> dict[str, Any]:
    """Return OpParam for a rank, with `rank` replaced.

    If the row expects an error at creation, a rank outside [0, rankSize) is not replaced, because
    the row tests it. For Send and Recv the peer's OpParam is that of the other operator; for
    AllToAllV a list of lists has a list per rank.

    Example:
        >>> row = CsvRow("a.csv:2", 1, "x", "AllGatherVOperation", {"rank": 0, "rankSize": 2})
        >>> rank_params(row, 1)
        {'rank': 1, 'rankSize': 2}
    """
    operator = OPERATIONS.get(row.operator)
    if operator is not None and operator.rank_params is not None:
        return operator.rank_params(row.params, rank)
    given = row.params.get("rank", 0)
    inside = isinstance(given, int) and 0 <= given < row.rank_size
    if row.expected.stage == "create" and not inside:
        return dict(row.params)
    known = operator.lists if operator is not None else ()
    names = [name for name in known if is_per_rank(row.params.get(name))]
    with _located(row):
        lists = {name: own_list(row.params, name, rank) for name in names}
    return {**row.params, **lists, "rank": rank}


def rank_operator(row: CsvRow, rank: int) -> str:
    """Return the operator that a rank runs in a row; empty if it takes no part.

    For most rows that is the row's operator on every rank. In a row of Send or Recv that must fail
    before a message moves, only one rank runs it.

    Example:
        >>> row = CsvRow("a.csv:2", 1, "x", "SendOperation", {"rankSize": 3, "destRank": 2})
        >>> [rank_operator(row, rank) for rank in range(3)]
        ['SendOperation', '', 'RecvOperation']
    """
    own = OPERATIONS.get(row.operator)
    if own is None or own.role is None:
        return row.operator
    role = own.role(row.params, rank, row.expected.stage in ("", "execute"))
    return OPERATORS[role].operation if role else ""


def expected_outputs(row: CsvRow, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Return the expected outputs of every rank: OutTensorFile's tensors, else golden's.

    Args:
        row: a row that expects no error.
        inputs: rank_inputs of every rank.

    Raises:
        OSError: a file cannot be read.
        ValueError: golden has no reference of the operator, or the inputs do not fit together.

    Example:
        >>> from .row_inputs import rank_inputs
        >>> ones = RowTensor("int8", (1, 2), generator="one")
        >>> counts = [RowTensor("int64", (n,)) for n in (2, 2, 1)]
        >>> tensors = (ones, *counts, RowTensor("float16", (1,)))
        >>> row = CsvRow("a.csv:2", 1, "x", "ReduceScatterVOperation", {"rankSize": 2}, tensors)
        >>> expected_outputs(row, [rank_inputs(row, rank) for rank in (0, 1)])
        [[array([[2, 0]], dtype=int8)], [array([[2, 0]], dtype=int8)]]
    """
    stated = _file_outputs(row)
    ranks = range(len(inputs))
    files = {at: [from_file(row, t, r) for r in ranks] for at, t in stated if t.file}
    if stated and len(files) == len(stated):
        return [[files[at][rank] for at, _ in stated] for rank in ranks]
    operator = OPERATIONS.get(row.operator)
    if operator is None:
        raise ValueError(f"{row.place}: golden has no reference of {row.operator}")
    numbers = operator.input_numbers(row.params)
    if len(inputs[0]) not in numbers:
        wanted = " or ".join(map(str, numbers))
        given = len(inputs[0])
        raise ValueError(f"{row.place}: {row.operator} has {wanted} inputs, the row {given}")
    with _located(row):
        outputs = operator.outputs(row.params, inputs)
    return [
        [files[at][rank] if at in files else array for at, array in enumerate(own)]
        for rank, own in enumerate(outputs)
    ]


def row_bounds(row: CsvRow, inputs: Sequence[Sequence[Array]]) -> list[Bound] | None:
    """Return the largest errors of each rank's first output; None: it must be equal bit for bit.

    Example:
        >>> row = CsvRow("a.csv:2", 1, "x", "AllGatherVOperation", {"rankSize": 2})
        >>> row_bounds(row, []) is None
        True
    """
    operator = OPERATIONS.get(row.operator)
    if operator is None or operator.bounds is None:
        return None
    return operator.bounds(row.params, inputs)


def row_layout(row: CsvRow, inputs: Sequence[Sequence[Array]]) -> OutputLayout:
    """Return where each rank's elements lie in the outputs, for `compare`.

    Raises:
        ValueError: golden does not know the operator's layout.

    Example:
        >>> from .row_inputs import rank_inputs
        >>> counts = [RowTensor("int64", (n,)) for n in (1, 2, 2)]
        >>> tensors = (RowTensor("int8", (3, 2)), *counts, RowTensor("float16", (6,)))
        >>> row = CsvRow("a.csv:2", 1, "x", "AllGatherVOperation", {"rankSize": 2}, tensors)
        >>> layout = row_layout(row, [rank_inputs(row, rank) for rank in (0, 1)])
        >>> [(block.start, block.count) for block in layout.blocks[1]]
        [(0, 6), (6, 6)]
    """
    if row.operator not in OPERATIONS:
        raise ValueError(f"{row.place}: golden does not know the layout of {row.operator}")
    with _located(row):
        return OPERATIONS[row.operator].layout(row.params, inputs)


@contextmanager
def _located(row: CsvRow) -> Iterator[None]:
    """Add the row's place to an error about a missing list of OpParam."""
    try:
        yield
    except NoListError as error:
        raise ValueError(f"{row.place}: {error}") from None


def _file_outputs(row: CsvRow) -> list[tuple[int, RowTensor]]:
    """Return the tensors that OutTensorFile may name: the outputs, or x if there are none."""
    operator = OPERATIONS.get(row.operator)
    if row.result_file and row.inputs and operator is not None and operator.in_place:
        return [(0, replace(row.inputs[0], file=row.result_file))]
    return list(enumerate(row.outputs))
