"""From a row of a case file to tensors: each rank's parameters and inputs, and what must come out.

A runner needs nothing else: `rank_params` and `rank_inputs` for a call, `expected_outputs` and
`row_bounds` for its results, `row.expected` for its error, `row_layout` to explain a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data.bounds import Bound
from ..data.dtypes import Array, storage
from ..data.generators import even_split, generate
from ..operators.layout import Layout
from .csv_row import CsvRow, RowTensor
from .message_row import message_params
from .row_lists import COUNT_LISTS, is_per_rank, rank_list
from .row_reference import REFERENCES
from .tensor_files import read_tensor


def rank_params(row: CsvRow, rank: int) -> dict[str, Any]:
    """Return OpParam for a rank: `rank` is its own.

    A rank outside [0, rankSize) stays where the row expects an error at creation: that is what
    such a row tests. Of Send and Recv the rank that the row names gets the other side's (see
    message_row.py), of AllToAllV each rank its own of a list of lists.

    Example:
        >>> row = CsvRow("a.csv:2", 1, "x", "AllGatherVOperation", {"rank": 0, "rankSize": 2})
        >>> rank_params(row, 1)
        {'rank': 1, 'rankSize': 2}
    """
    if row.operator in ("SendOperation", "RecvOperation"):
        return message_params(row, rank)
    given = row.params.get("rank", 0)
    inside = isinstance(given, int) and 0 <= given < row.rank_size
    if row.expected.stage == "create" and not inside:
        return dict(row.params)
    lists = [name for name in COUNT_LISTS if is_per_rank(row.params.get(name))]
    return {**row.params, **{name: rank_list(row, name, rank) for name in lists}, "rank": rank}


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
    reference = REFERENCES.get(row.operator)
    if reference is None:
        raise ValueError(f"{row.place}: golden has no reference of {row.operator}")
    if len(inputs[0]) not in reference.inputs:
        wanted = " or ".join(map(str, reference.inputs))
        given = len(inputs[0])
        raise ValueError(f"{row.place}: {row.operator} has {wanted} inputs, the row {given}")
    outputs = reference.outputs(row, inputs)
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
    reference = REFERENCES.get(row.operator)
    if reference is None or reference.bounds is None:
        return None
    return reference.bounds(row, inputs)


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
    if row.operator not in REFERENCES:
        raise ValueError(f"{row.place}: golden does not know the layout of {row.operator}")
    return REFERENCES[row.operator].layout(row, inputs)


def _file_outputs(row: CsvRow) -> list[tuple[int, RowTensor]]:
    """Return what OutTensorFile may name: the outputs, or x where it is what comes out."""
    reference = REFERENCES.get(row.operator)
    if row.result_file and row.inputs and reference is not None and reference.in_place:
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
    reference = REFERENCES.get(row.operator)
    meanings = reference.customized if reference else ()
    meaning = meanings[position] if position < len(meanings) else "x"
    if tensor.generator == "customize" and meaning != "x":
        return _customized(row, tensor, meaning, rank)
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


def _customized(row: CsvRow, tensor: RowTensor, meaning: str, rank: int) -> Array:
    """Return counts, displacements or the y of an even split, in the shape that the row says."""
    if meaning == "zero":
        return np.zeros(tensor.shape, storage(tensor.dtype))
    x = row.inputs[0]
    ranks = range(max(row.rank_size, 1))
    if "{rank}" in x.file:
        sizes = [_from_file(row, x, r).size for r in ranks]
    else:
        sizes = [int(np.prod(x.shape, dtype=np.int64))] * len(ranks)
    values = _even_numbers(row.operator, sizes, rank)
    # A wrong length is filled up: what the row tests then is the length.
    return np.resize(np.array(values[meaning]), tensor.shape).astype(storage(tensor.dtype))


def _even_numbers(operator: str, sizes: Sequence[int], rank: int) -> dict[str, list[int]]:
    """Return what customized count tensors hold, by the words of RowReference.customized."""
    if operator == "AllToAllVV2Operation":
        # A rank's own x in equal parts, and such a part of every rank's.
        sent = even_split([sizes[rank]] * len(sizes), divide=True)
        received = even_split(sizes, divide=True)
        return {
            "counts": sent[0],
            "displacements": sent[1],
            "counts received": received[0],
            "displacements received": received[1],
        }
    counts, displs = even_split(sizes, divide=operator == "ReduceScatterVOperation")
    return {"own count": counts[rank : rank + 1], "counts": counts, "displacements": displs}
