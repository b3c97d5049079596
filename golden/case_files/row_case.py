"""From a row of a case file to tensors: each rank's parameters and inputs, and what must come out.

A runner needs nothing else: `rank_params` and `rank_inputs` for a call, `expected_outputs` and
`row_bounds` for its results, `row.expected` for its error, `row_layout` to explain a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..data.bounds import Bound
from ..data.dtypes import Array, storage
from ..data.generators import generate
from ..operators.layout import Layout
from ..operators.operator import (
    Inputs,
    NoListError,
    Operator,
    Params,
    is_per_rank,
    own_list,
)
from ..operators.table import OPERATIONS, OPERATORS
from .csv_row import CsvRow, RowTensor
from .tensor_files import read_tensor

_Answer = TypeVar("_Answer")


def rank_params(row: CsvRow, rank: int) -> dict[str, Any]:
    """Return OpParam for a rank: `rank` is its own.

    A rank outside [0, rankSize) stays where the row expects an error at creation: that is what
    such a row tests. Of Send and Recv the rank that the row names gets the other side's, of
    AllToAllV each rank its own of a list of lists.

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
    lists = [name for name in known if is_per_rank(row.params.get(name))]
    return {**row.params, **{name: rank_list(row, name, rank) for name in lists}, "rank": rank}


def rank_list(row: CsvRow, name: str, rank: int) -> list[int]:
    """Return a rank's own list of OpParam.

    Raises:
        ValueError: the row has no such list, or none for this rank.

    Example:
        >>> params = {"rankSize": 2, "sendCounts": [[1, 2], [3, 4]]}
        >>> rank_list(CsvRow("a.csv:2", 1, "x", "AllToAllVOperation", params), "sendCounts", 1)
        [3, 4]
    """
    try:
        return own_list(row.params, name, rank)
    except NoListError as error:
        raise ValueError(f"{row.place}: {error}") from None


def rank_operator(row: CsvRow, rank: int) -> str:
    """Return the operator that a rank runs of a row; empty where it takes no part.

    Of most rows that is the row's own, on every rank. Who must fail before a message is moved
    fails alone.

    Example:
        >>> row = CsvRow("a.csv:2", 1, "x", "SendOperation", {"rankSize": 3, "destRank": 2})
        >>> [rank_operator(row, rank) for rank in range(3)]
        ['SendOperation', '', 'RecvOperation']
    """
    own = OPERATIONS.get(row.operator)
    if own is None or own.role is None:
        return row.operator
    role = own.role(row.params, rank)
    moves = row.expected.stage in ("", "execute")
    return OPERATORS[role].operation if role == own.name or (role and moves) else ""


def rank_inputs(row: CsvRow, rank: int, *, seed: int = 0, same_data: bool = False) -> list[Array]:
    """Return the input tensors of one rank, from files or generators as the row says.

    `{rank}` in a file's name stands for the rank.

    Args:
        row: a row whose tensors can all be made (RowTensor.can_be_made).
        rank: whose tensors.
        seed: seed of generated data.
        same_data: give every rank the data of rank 0.

    Returns:
        The tensors in the row's order; bfloat16 as np.uint16 bits.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file contradicts the row, or a tensor cannot be made.

    Example:
        >>> counts = [RowTensor("int64", (n,)) for n in (1, 2, 2)]
        >>> tensors = (RowTensor("int8", (3, 2)), *counts, RowTensor("float16", (6,)))
        >>> row = CsvRow("a.csv:2", 1, "x", "AllGatherVOperation", {"rankSize": 2}, tensors)
        >>> [tensor.tolist() for tensor in rank_inputs(row, 1)[1:4]]
        [[6], [6, 6], [0, 6]]
    """
    return [
        rank_input(row, rank, position, seed=seed, same_data=same_data)
        for position in range(len(row.inputs))
    ]


def rank_input(
    row: CsvRow, rank: int, position: int, *, seed: int = 0, same_data: bool = False
) -> Array:
    """Return one input tensor of one rank, as rank_inputs does.

    Example:
        >>> row = CsvRow("a.csv:2", 1, "x", "AllReduceOperation", {"rankSize": 2},
        ...              (RowTensor("int8", (3,), generator="one"),))
        >>> rank_input(row, 1, 0).tolist()
        [1, 1, 1]
    """
    tensor = row.inputs[position]
    if tensor.file:
        return _from_file(row, tensor, rank)
    return _generated(row, position, rank, seed, same_data)


def expected_outputs(row: CsvRow, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Return what every rank must get: OutTensorFile's tensors where it names any, else golden's.

    Args:
        row: a row that expects no error.
        inputs: rank_inputs of every rank.

    Raises:
        OSError: a file cannot be read.
        ValueError: golden has no reference of the operator, or the inputs do not fit together.

    Example:
        >>> ones = RowTensor("int8", (1, 2), generator="one")
        >>> counts = [RowTensor("int64", (n,)) for n in (2, 2, 1)]
        >>> tensors = (ones, *counts, RowTensor("float16", (1,)))
        >>> row = CsvRow("a.csv:2", 1, "x", "ReduceScatterVOperation", {"rankSize": 2}, tensors)
        >>> expected_outputs(row, [rank_inputs(row, rank) for rank in (0, 1)])
        [[array([[2, 0]], dtype=int8)], [array([[2, 0]], dtype=int8)]]
    """
    stated = _file_outputs(row)
    ranks = range(len(inputs))
    files = {at: [_from_file(row, t, r) for r in ranks] for at, t in stated if t.file}
    if stated and len(files) == len(stated):
        return [[files[at][rank] for at, _ in stated] for rank in ranks]
    operator = OPERATIONS.get(row.operator)
    if operator is None:
        raise ValueError(f"{row.place}: golden has no reference of {row.operator}")
    if len(inputs[0]) not in operator.input_numbers:
        wanted = " or ".join(map(str, operator.input_numbers))
        given = len(inputs[0])
        raise ValueError(f"{row.place}: {row.operator} has {wanted} inputs, the row {given}")
    outputs = _of_row(row, operator.outputs, inputs)
    return [
        [files[at][rank] if at in files else array for at, array in enumerate(own)]
        for rank, own in enumerate(outputs)
    ]


def row_bounds(row: CsvRow, inputs: Sequence[Sequence[Array]]) -> list[Bound] | None:
    """Return how far each rank's first output may be off; None: not at all, bit for bit.

    Example:
        >>> row = CsvRow("a.csv:2", 1, "x", "AllGatherVOperation", {"rankSize": 2})
        >>> row_bounds(row, []) is None
        True
    """
    operator = OPERATIONS.get(row.operator)
    if operator is None or operator.bounds is None:
        return None
    return operator.bounds(row.params, inputs)


def row_layout(row: CsvRow, inputs: Sequence[Sequence[Array]]) -> Layout:
    """Return where each rank's elements lie in the outputs, for `compare`.

    Raises:
        ValueError: golden does not know the operator's layout.

    Example:
        >>> counts = [RowTensor("int64", (n,)) for n in (1, 2, 2)]
        >>> tensors = (RowTensor("int8", (3, 2)), *counts, RowTensor("float16", (6,)))
        >>> row = CsvRow("a.csv:2", 1, "x", "AllGatherVOperation", {"rankSize": 2}, tensors)
        >>> layout = row_layout(row, [rank_inputs(row, rank) for rank in (0, 1)])
        >>> [(block.start, block.count) for block in layout.blocks[1]]
        [(0, 6), (6, 6)]
    """
    if row.operator not in OPERATIONS:
        raise ValueError(f"{row.place}: golden does not know the layout of {row.operator}")
    return _of_row(row, OPERATIONS[row.operator].layout, inputs)


def _of_row(row: CsvRow, ask: Callable[[Params, Inputs], _Answer], inputs: Inputs) -> _Answer:
    """Return what an operator answers; an error that a list is missing names the row."""
    try:
        return ask(row.params, inputs)
    except NoListError as error:
        raise ValueError(f"{row.place}: {error}") from None


def _file_outputs(row: CsvRow) -> list[tuple[int, RowTensor]]:
    """Return what OutTensorFile may name: the outputs, or x where it is what comes out."""
    operator = OPERATIONS.get(row.operator)
    if row.result_file and row.inputs and operator is not None and operator.in_place:
        return [(0, replace(row.inputs[0], file=row.result_file))]
    return list(enumerate(row.outputs))


def _path(row: CsvRow, file: str, rank: int) -> Path:
    folder = Path(row.place.rpartition(":")[0]).parent
    return folder / file.replace("{rank}", str(rank))


def _from_file(row: CsvRow, tensor: RowTensor, rank: int) -> Array:
    path = _path(row, tensor.file, rank)
    try:
        array, dtype = read_tensor(path, form=tensor.format)
    except ValueError as error:
        raise ValueError(f"{row.place}: {error}") from None
    if dtype != tensor.dtype:
        raise ValueError(f"{row.place}: {path} holds {dtype}, the row says {tensor.dtype}")
    # With a file per rank, the first dim is the rank's own.
    own = slice(1 if "{rank}" in tensor.file else 0, None)
    if array.ndim != len(tensor.shape) or array.shape[own] != tensor.shape[own]:
        raise ValueError(
            f"{row.place}: {path} has shape {list(array.shape)}, the row says {list(tensor.shape)}"
        )
    return array


def _generated(row: CsvRow, position: int, rank: int, seed: int, same_data: bool) -> Array:
    tensor = row.inputs[position]
    operator = OPERATIONS.get(row.operator)
    if operator and tensor.generator == "customize" and 0 < position <= len(operator.inputs):
        holds = operator.inputs[position - 1].holds
        if holds != "data":
            return _customized(row, tensor, holds, operator, rank)
    return generate(
        tensor.generator,
        tensor.shape,
        tensor.dtype,
        value_range=tensor.range,
        rank=rank,
        position=position,
        seed=seed,
        same_data=same_data,
    )


def _customized(row: CsvRow, tensor: RowTensor, holds: str, operator: Operator, rank: int) -> Array:
    """Return counts, displacements or the y of an even split, in the shape that the row says."""
    if holds == "length":
        return np.zeros(tensor.shape, storage(tensor.dtype))
    x = row.inputs[0]
    ranks = range(max(row.rank_size, 1))
    if "{rank}" in x.file:
        sizes = [_from_file(row, x, r).size for r in ranks]
    else:
        sizes = [int(np.prod(x.shape, dtype=np.int64))] * len(ranks)
    values = operator.split(sizes, rank)
    # A wrong length is filled up: what the row tests then is the length.
    return np.resize(np.array(values[holds]), tensor.shape).astype(storage(tensor.dtype))
