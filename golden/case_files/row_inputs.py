"""The input tensors of a row of a case file, from the row's files or generators."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..data.dtypes import Array, storage
from ..data.generators import generate
from ..operators.linear_parallel.entry import linear_call
from ..operators.linear_parallel.quantised_data import even_tokens
from ..operators.operator import Operator
from ..operators.table import OPERATIONS
from .csv_row import MOST_RANKS, CsvRow, RowError, RowTensor
from .tensor_files import read_tensor


def rank_inputs(row: CsvRow, rank: int, *, seed: int = 0, same_data: bool = False) -> list[Array]:
    """Return the input tensors of one rank, from the row's files or generators.

    `{rank}` in a file's name stands for the rank.

    Args:
        row: a row whose tensors can all be made (RowTensor.can_be_made).
        rank: the rank whose tensors are returned.
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
        return from_file(row, tensor, rank)
    return _generated(row, position, rank, seed, same_data)


def _path(row: CsvRow, file: str, rank: int) -> Path:
    folder = Path(row.place.rpartition(":")[0]).parent
    return folder / file.replace("{rank}", str(rank))


def missing_file(row: CsvRow) -> RowError | None:
    """Return the problem of a row that names a tensor file which is not there, else None.

    Example:
        >>> tensor = RowTensor("int8", (2,), file="nope.npy")
        >>> row = CsvRow("a.csv:7", 1, "x", "AllReduceOperation", {"rankSize": 2}, (tensor,))
        >>> print(missing_file(row))
        a.csv:7: column InTensorFile: nope.npy is not beside the case file
    """
    # A message's row is that of one rank: its peer's files are not read.
    operator = OPERATIONS.get(row.operator)
    is_message = operator is not None and operator.role is not None
    ranks = 0 if is_message else min(row.rank_size, MOST_RANKS)
    named = [("InTensorFile", tensor.file) for tensor in row.inputs]
    named += [("OutTensorFile", tensor.file) for tensor in row.outputs]
    named.append(("OutTensorFile", row.result_file))
    for column, file in named:
        of_ranks = "{rank}" in file
        paths = [_path(row, file, rank) for rank in range(ranks if of_ranks else 1)]
        missing = next((path for path in paths if not path.exists()), None) if file else None
        if missing is not None:
            name = file.replace("{rank}", str(paths.index(missing)))
            text = f"column {column}: {name} is not beside the case file"
            problem = RowError(row.place, column, "", file, text)
            problem.number, problem.name, problem.operator = row.number, row.name, row.operator
            return problem
    return None


def from_file(row: CsvRow, tensor: RowTensor, rank: int) -> Array:
    """Return a tensor of one rank from the file that the row names.

    Raises:
        OSError: the file cannot be read.
        ValueError: it contradicts the row.

    Example:
        >>> import tempfile
        >>> tensor = RowTensor("int8", (2,), file="x{rank}.npy")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/x1.npy", np.array([3, 4], np.int8))
        ...     row = CsvRow(f"{folder}/a.csv:2", 1, "x", "AllReduceOperation", {"rankSize": 2})
        ...     from_file(row, tensor, 1).tolist()
        [3, 4]
    """
    path = _path(row, tensor.file, rank)
    try:
        array, dtype = read_tensor(path, form=tensor.format)
    except ValueError as error:
        raise ValueError(f"{row.place}: {error}") from None
    if dtype != tensor.dtype:
        raise ValueError(f"{row.place}: {path} holds {dtype}, the row says {tensor.dtype}")
    # With a file per rank the first dim may differ per rank, and with sumColumns k, too, which is
    # x's last dim, and the weight's first or last.
    own = slice(None)
    if "{rank}" in tensor.file:
        own = slice(1, -1 if row.params.get("sumColumns") else None)
    if array.ndim != len(tensor.shape) or array.shape[own] != tensor.shape[own]:
        raise ValueError(
            f"{row.place}: {path} has shape {list(array.shape)}, the row says {list(tensor.shape)}"
        )
    return array


def _generated(row: CsvRow, position: int, rank: int, seed: int, same_data: bool) -> Array:
    tensor = row.inputs[position]
    operator = OPERATIONS.get(row.operator)
    stated = operator.inputs_of(row.params) if operator else ()
    holds = stated[position - 1].holds if 0 < position <= len(stated) else "data"
    is_scale = holds == "scale" and tensor.dtype == "int64"
    if operator and tensor.generator == "customize" and holds not in ("data", "scale"):
        return _customized(row, tensor, holds, operator, rank)
    made = generate(
        tensor.generator,
        tensor.shape,
        "float32" if is_scale else tensor.dtype,
        value_range=tensor.range,
        rank=rank,
        position=position,
        seed=seed,
        same_data=same_data,
    )
    # As in ATB's own tool, an int64 scale is the bits of a float32 whose 13 lowest are 0.
    return made.view(np.uint32).astype(np.int64) >> 13 << 13 if is_scale else made


def _customized(row: CsvRow, tensor: RowTensor, holds: str, operator: Operator, rank: int) -> Array:
    """Return counts, displacements or the y of an even split, in the row's shape."""
    if holds == "length":
        return np.zeros(tensor.shape, storage(tensor.dtype))
    if holds == "tokens":
        return np.resize(_tokens(row), tensor.shape).astype(storage(tensor.dtype))
    x = row.inputs[0]
    ranks = range(max(row.rank_size, 1))
    if "{rank}" in x.file:
        sizes = [from_file(row, x, r).size for r in ranks]
    else:
        sizes = [int(np.prod(x.shape, dtype=np.int64))] * len(ranks)
    values = operator.split(sizes, rank)
    # A tensor of a wrong length is filled up, because the row tests the length.
    return np.resize(np.array(values[holds]), tensor.shape).astype(storage(tensor.dtype))


def _tokens(row: CsvRow) -> Array:
    """Return the matrix of a row with experts, with as many rows for each as all have room for."""
    call = linear_call(row.params, row.rank_size)
    length = row.inputs[-1].shape
    return even_tokens(call, row.inputs[0].shape[0], length[0] if length else 0)
