"""From the rows of each rank to elements: the arithmetic and the checks of the plain level."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from collops.errors import ErrorCode, raise_status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MAX_ELEMENTS = 2**63 - 1


@dataclass(frozen=True)
class Plan:
    """One set of shapes and sizes, ready for the core."""

    out_shape: tuple[int, ...]
    blocks: Any  # collops._core.Blocks


def bad_argument(message: str) -> NoReturn:
    """Raises ERROR_INVALID_PARAM."""
    raise_status(ErrorCode.ERROR_INVALID_PARAM, message)


def rows_of(name: str, sizes: Sequence[int], rank_size: int) -> list[int]:
    """`sizes` as numbers of rows, one per rank."""
    try:
        rows = [operator.index(size) for size in sizes]
    except TypeError:
        bad_argument(f"{name}: sizes must be whole numbers of rows, one per rank, got {sizes!r}")
    if len(rows) != rank_size:
        bad_argument(f"{name}: sizes has {len(rows)} entries, there are {rank_size} ranks")
    for rank, size in enumerate(rows):
        if size < 0:
            bad_argument(f"{name}: sizes[{rank}] must be >= 0, got {size}")
    return rows


def split_evenly(rows: int, rank_size: int) -> list[int]:
    """Rows per rank as numpy.array_split shares them out: the first ones get one more."""
    each, more = divmod(rows, rank_size)
    return [each + (rank < more) for rank in range(rank_size)]


def plan_gather(
    make_blocks: Callable[[list[int]], Any],
    shape: Sequence[int],
    sizes: Sequence[int],
    rank: int,
    rank_size: int,
    unit: int,
) -> Plan:
    """Plans all_gatherv: this rank has all of `shape`, rank r has sizes[r] rows.

    An element counts as `unit` elements of the core.
    """
    rows = rows_of("all_gatherv", sizes, rank_size)
    if rows[rank] != shape[0]:
        bad_argument(
            f"all_gatherv: sizes[{rank}] is {rows[rank]}, but x has {shape[0]} rows on rank {rank}"
        )
    return _plan("all_gatherv", make_blocks, rows, sum(rows), shape, unit)


def plan_scatter(
    make_blocks: Callable[[list[int]], Any],
    shape: Sequence[int],
    sizes: Sequence[int] | None,
    rank: int,
    rank_size: int,
) -> Plan:
    """Plans reduce_scatterv: every rank has all of `shape`, rank r receives sizes[r] rows."""
    if sizes is None:
        rows = split_evenly(shape[0], rank_size)
    else:
        rows = rows_of("reduce_scatterv", sizes, rank_size)
    if sum(rows) != shape[0]:
        bad_argument(f"reduce_scatterv: sizes make {sum(rows)} rows, but x has {shape[0]}")
    return _plan("reduce_scatterv", make_blocks, rows, rows[rank], shape, 1)


def _plan(
    name: str,
    make_blocks: Callable[[list[int]], Any],
    rows: list[int],
    out_rows: int,
    shape: Sequence[int],
    unit: int,
) -> Plan:
    row_elements = math.prod(shape[1:]) * unit
    if sum(rows) * row_elements > _MAX_ELEMENTS:
        raise_status(
            ErrorCode.ERROR_INVALID_TENSOR_SIZE,
            f"{name}: {sum(rows)} rows of {row_elements} elements are more than memory can hold",
        )
    counts = [size * row_elements for size in rows]
    return Plan((out_rows, *shape[1:]), make_blocks(counts))
