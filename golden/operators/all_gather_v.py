"""AllGatherV: blocks of every rank, placed by element counts and displacements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ..data.dtypes import Array
from ..data.generators import even_split
from ..data.shares import SHARES, first_overlap, shares
from .case import Case, rows_of
from .case_lists import (
    HUGE,
    block_numbers,
    blocks_case,
    every_dtype,
    every_share,
    moved_data,
    unusual_places,
)
from .operator import Input, Inputs, Operator, Outputs, Params, xs_of
from .output_layout import OutputLayout, gather_layout


def all_gather_v(
    xs: Sequence[Array],
    recv_counts: Sequence[int],
    rdispls: Sequence[int],
    rows: int,
    *,
    rank: int = 0,
) -> Array:
    """Return the output of AllGatherV, equal on all ranks; what no block covers is zero.

    `output.flat[rdispls[r] : rdispls[r] + recv_counts[r]] = xs[r].flat[:recv_counts[r]]`

    Args:
        xs: x of every rank, [d0, d1, ...]; d0 may differ. Any dtype, bfloat16 as uint16 bits.
        recv_counts: elements taken from each rank.
        rdispls: element offset of each rank's block in the output; any order, gaps are legal.
        rows: rows n of the output, the length of y.
        rank: the rank whose d1, ... the output has; matters only if they differ between ranks.

    Returns:
        [rows, d1, ...] of x's dtype, a new array.

    Raises:
        ValueError: lists of other lengths than xs, dtypes that differ, a count above its x, and
            a block that is negative, past the output's end or over another block.

    Example:
        >>> x0 = np.array([[0, 1, 2, 3], [4, 5, 6, 7]], np.int8)
        >>> x1 = np.array([[3, 2, 1, 0], [7, 6, 5, 4], [7, 6, 5, 4]], np.int8)
        >>> all_gather_v([x0, x1], [4, 2], [0, 4], 5).tolist()
        [[0, 1, 2, 3], [3, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    """
    shape = (rows, *xs[rank].shape[1:])
    _check(xs, recv_counts, rdispls, math.prod(shape))
    output = np.zeros(shape, xs[0].dtype)
    flat = output.reshape(-1)
    for x, count, start in zip(xs, recv_counts, rdispls, strict=True):
        flat[start : start + count] = x.reshape(-1)[:count]
    return output


def _check(
    xs: Sequence[Array], recv_counts: Sequence[int], rdispls: Sequence[int], size: int
) -> None:
    """Raise ValueError for arguments that numpy's slices would accept with another meaning."""
    for name, values in (("recv_counts", recv_counts), ("rdispls", rdispls)):
        if len(values) != len(xs):
            raise ValueError(
                f"all_gather_v: {name} must have length {len(xs)}, one per rank, got {len(values)}"
            )
    for r, (x, count, start) in enumerate(zip(xs, recv_counts, rdispls, strict=True)):
        if x.dtype != xs[0].dtype:
            raise ValueError(f"all_gather_v: xs[{r}] is {x.dtype}, xs[0] is {xs[0].dtype}")
        if not 0 <= count <= x.size:
            raise ValueError(
                f"all_gather_v: recv_counts[{r}] is {count}, xs[{r}] has {x.size} elements"
            )
        if start < 0 or count > size - start:
            raise ValueError(
                f"all_gather_v: block {r} (rdispls {start} + recv_counts {count}) "
                f"exceeds the output's {size} elements"
            )
    overlap = first_overlap(rdispls, recv_counts)
    if overlap is not None:
        r, q, start = overlap
        raise ValueError(f"all_gather_v: blocks {r} and {q} overlap at element {start}")


def _cases(size: int) -> Iterator[Case]:
    """Yield every dtype, share, kind of data, placement of blocks and shape, each once."""
    case = partial(blocks_case, "all_gather_v", gathers=True)
    yield from every_dtype(case, shares("1:2:3:4", size, 12))
    yield from every_share(case, size, SHARES)
    yield from moved_data(case, shares("3:5", size, 20))
    yield from unusual_places(case, size)
    cut = [5 + 2 * r for r in range(size)]
    yield case("layout-tail", shares("3:5", size, 4), "int64", tail=3)
    yield case("layout-cut-rows-tail", cut, "int8", tail=2)
    yield case("layout-part-of-x", cut, "int32", extra=2)
    yield case("layout-zero-of-x", shares("zeros", size, 4), "bool", extra=1)
    yield case("layout-huge", [7 + r for r in range(size - 1)] + [HUGE], "int64")
    counts = shares("1:2:3:4", size, 12)
    for row in ((), (6,), (2, 3), (2, 1, 2), (1, 2, 1, 2, 1, 2, 1)):
        yield case(f"shape-{len(row) + 1}d", counts, row=row)
    longer = case("shape-lengths-differ", counts, "float32")
    yield replace(longer, rows=tuple(rows + r for r, rows in enumerate(longer.rows)))
    row_lengths = range(1, size + 1)
    yield replace(
        case("shape-rows-differ", counts, "int16"),
        x_shapes=tuple((rows_of(c, (n,)), n) for c, n in zip(counts, row_lengths, strict=True)),
        rows=tuple(rows_of(sum(counts), (n,)) for n in row_lengths),
    )


def _numbers(inputs: Inputs) -> tuple[list[int], list[int]]:
    return inputs[0][2].tolist(), inputs[0][3].tolist()


def _outputs(params: Params, inputs: Inputs) -> Outputs:
    xs, (counts, displs) = xs_of(inputs), _numbers(inputs)
    return [[all_gather_v(xs, counts, displs, len(own[4]), rank=r)] for r, own in enumerate(inputs)]


def _layout(params: Params, inputs: Inputs) -> OutputLayout:
    return gather_layout(*_numbers(inputs), outputs=len(inputs))


ALL_GATHER_V = Operator(
    name="all_gather_v",
    operation="AllGatherVOperation",
    cases=_cases,
    outputs=_outputs,
    layout=_layout,
    inputs=(
        Input("sendCount", "int64", "own count"),
        Input("recvCounts", "int64", "counts"),
        Input("rdispls", "int64", "displacements"),
        Input("y", "float16", "length"),
    ),
    numbers=lambda case, rank: block_numbers(case.counts, case.displs, rank),
    split=lambda sizes, rank: block_numbers(*even_split(sizes, divide=False), rank),
)
