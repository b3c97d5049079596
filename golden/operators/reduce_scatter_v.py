"""ReduceScatterV: each rank gets the reduction of its own slice of every x."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from ..data.dtypes import Array, name_of, storage
from ..data.generators import even_split
from ..data.reduction import check_reduction, reduce_ranks
from ..data.shares import SHARES, shares
from .case import Case, rows_of
from .case_lists import (
    ALL_PAIRS,
    HUGE,
    block_numbers,
    blocks_case,
    every_reduction,
    every_share,
    reduced_data,
    unusual_places,
)
from .operator import SCATTERS, Input, Inputs, Operator, Outputs, Params, each, xs_of
from .output_layout import OutputLayout, scatter_layout


def reduce_scatter_v(
    xs: Sequence[Array],
    send_counts: Sequence[int],
    sdispls: Sequence[int],
    rows: Sequence[int],
    op: str = "sum",
    dtype: str | None = None,
) -> list[Array]:
    """Return the outputs of ReduceScatterV, one per rank; a tail beyond the count is zero.

    `output_r.flat[:send_counts[r]] =
    reduce over q, in rank order, of xs[q].flat[sdispls[r] : sdispls[r] + send_counts[r]]`

    The arithmetic is that of `reduction.reduce_ranks`, exact to the bit.

    Args:
        xs: x of every rank, [d0, d1], of one shape and dtype; bfloat16 as uint16 bits.
        send_counts: elements each rank receives.
        sdispls: element offset of each rank's slice in x; slices may overlap.
        rows: rows of each rank's output, the length of its y.
        op: sum, max, min, prod, avg, or of integers band, bor, bxor.
        dtype: name of x's dtype; None reads it from the arrays.

    Returns:
        One new array [rows[r], d1] per rank, of x's dtype.

    Raises:
        ValueError: lists of other lengths than xs, shapes or dtypes that differ, a slice outside
            x, a count above its output, or an `op` that the dtype does not have.

    Example:
        >>> xs = [np.array([[1, 2], [3, 4], [5, 6]], np.int32) * s for s in (1, 10)]
        >>> [y.tolist() for y in reduce_scatter_v(xs, [4, 2], [0, 4], [2, 1])]
        [[[11, 22], [33, 44]], [[55, 66]]]
    """
    dtype = dtype or name_of(xs[0])
    check_reduction(op, dtype)
    _check(xs, send_counts, sdispls, rows, dtype)
    outputs = []
    for count, start, height in zip(send_counts, sdispls, rows, strict=True):
        output = np.zeros((height, *xs[0].shape[1:]), storage(dtype))
        slices = [x.reshape(-1)[start : start + count] for x in xs]
        output.reshape(-1)[:count] = reduce_ranks(slices, op, dtype)
        outputs.append(output)
    return outputs


def _check(
    xs: Sequence[Array],
    send_counts: Sequence[int],
    sdispls: Sequence[int],
    rows: Sequence[int],
    dtype: str,
) -> None:
    """Raise ValueError for arguments that numpy's slices would accept with another meaning."""
    for name, values in (("send_counts", send_counts), ("sdispls", sdispls), ("rows", rows)):
        if len(values) != len(xs):
            raise ValueError(
                f"reduce_scatter_v: {name} must have length {len(xs)}, "
                f"one per rank, got {len(values)}"
            )
    for q, x in enumerate(xs):
        if x.shape != xs[0].shape or x.dtype != storage(dtype):
            raise ValueError(
                f"reduce_scatter_v: xs[{q}] is {x.shape} {x.dtype}, "
                f"expected {xs[0].shape} {storage(dtype)}"
            )
    size, width = xs[0].size, math.prod(xs[0].shape[1:])
    for r, (count, start, height) in enumerate(zip(send_counts, sdispls, rows, strict=True)):
        if count < 0 or start < 0 or count > size - start:
            raise ValueError(
                f"reduce_scatter_v: slice {r} (sdispls {start} + send_counts {count}) "
                f"is outside x's {size} elements"
            )
        if count > height * width:
            raise ValueError(
                f"reduce_scatter_v: send_counts[{r}] is {count}, "
                f"output {r} has {height * width} elements"
            )


def _cases(size: int) -> Iterator[Case]:
    """Yield every dtype with every op, and every share, kind of data and placement once."""
    case = partial(blocks_case, "reduce_scatter_v", gathers=False, op="sum")
    steps = size * (size + 1) // 2
    yield from every_reduction(case, shares("1:2:3:4", size, rows_of(ALL_PAIRS, (steps,))))
    yield from every_share(case, size, SHARES)
    yield from reduced_data(case, shares("3:5", size, 20))
    yield case("data-cancel-avg", shares("3:5", size, 20), op="avg", kind="cancel")
    yield from unusual_places(case, size, gaps_op="max", cut_op="min")
    counts, cut = shares("3:5", size, 4), [5 + 2 * r for r in range(size)]
    yield case("layout-overlap", counts, "int32", displs=[3 * r for r in range(size)])
    yield case("layout-same-slice", [21] * size, displs=[6] * size)
    yield case("layout-part-of-x", counts, "int8", extra=3)
    yield case("layout-tail", counts, "int64", tail=3)
    yield case("layout-cut-rows-tail", cut, "bfloat16", op="max", tail=2)
    yield case("layout-zeros-tail", shares("zeros", size, 4), "float32", tail=1)
    yield case("layout-narrow", cut, row=(1,))
    yield case("layout-wide", [300 + r for r in range(size)], row=(257,), tail=1)
    huge = [7 + r for r in range(size - 1)] + [HUGE]
    yield case("layout-huge", huge, "float64", kind="random")


def _numbers(inputs: Inputs) -> tuple[list[int], list[int]]:
    return inputs[0][1].tolist(), inputs[0][2].tolist()


def _op(params: Params) -> str:
    return str(params.get("reduceType", "sum"))


def _outputs(params: Params, inputs: Inputs) -> Outputs:
    rows = [len(own[4]) for own in inputs]
    return each(reduce_scatter_v(xs_of(inputs), *_numbers(inputs), rows, _op(params)))


def _layout(params: Params, inputs: Inputs) -> OutputLayout:
    return scatter_layout(xs_of(inputs), *_numbers(inputs), _op(params))


REDUCE_SCATTER_V = Operator(
    name="reduce_scatter_v",
    operation="ReduceScatterVOperation",
    cases=_cases,
    outputs=_outputs,
    layout=_layout,
    params=lambda case: {"reduceType": case.op},
    inputs=(
        Input("sendCounts", "int64", "counts"),
        Input("sdispls", "int64", "displacements"),
        Input("recvCount", "int64", "own count"),
        Input("y", "float16", "length"),
    ),
    numbers=lambda case, rank: block_numbers(case.counts, case.displs, rank),
    split=lambda sizes, rank: block_numbers(*even_split(sizes, divide=True), rank),
    accuracy=SCATTERS,
    more_dtypes=lambda params: {"float32", "float64", "uint8", "int16", "int32", "int64"},
)
