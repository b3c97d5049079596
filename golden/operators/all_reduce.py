"""AllReduce: the reduction of every rank's x, on every rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from ..data.dtypes import Array, name_of, rounded
from ..data.reduction import ATB_REDUCE_OPS, reduce_ranks
from .case import Case
from .case_lists import ALL_PAIRS, HUGE, every_dim, every_reduction, reduced_data
from .even import Even, check_alike
from .operator import COMPUTES, Operator, Params, each, xs_of


def all_reduce(xs: Sequence[Array], op: str = "sum", dtype: str | None = None) -> Array:
    """Return the output of AllReduce, the same on every rank.

    `output = xs[0] op xs[1] op ... op xs[P-1]`, in rank order

    The arithmetic is that of `reduction.reduce_ranks`, exact to the bit.

    Args:
        xs: x of every rank, of one shape and dtype; bfloat16 as uint16 bits.
        op: sum, max, min, prod, avg, or of integers band, bor, bxor.
        dtype: name of x's dtype; None reads it from the arrays.

    Returns:
        A new array of x's shape and dtype.

    Raises:
        ValueError: shapes or dtypes differ, or the dtype has no such `op`.

    Example:
        >>> all_reduce([np.array([1, 5], np.int8), np.array([3, 2], np.int8)], "max").tolist()
        [3, 5]
    """
    check_alike("all_reduce", xs)
    return reduce_ranks(xs, op, dtype or name_of(xs[0]))


def all_reduce_quantised(
    xs: Sequence[Array], scales: Sequence[Array], offsets: Sequence[Array]
) -> list[Array]:
    """Return the outputs of a quantised AllReduce, per rank.

    `output_r = float16((float32(sum of the ranks' x) + float32(P) * float32(offset_r)) *
    float32(scale_r))`. The sum is int32; each step in float32 is rounded to nearest even.

    Args:
        xs: x of every rank, int8, of one shape.
        scales: scale of every rank, float16: [1], or [n] or [1, n] for the n columns of x.
        offsets: offset of every rank, float16 [1].

    Raises:
        ValueError: shapes or dtypes differ, or a scale or offset does not fit.

    Example:
        >>> xs = [np.array([[100, -7]], np.int8), np.array([[100, 3]], np.int8)]
        >>> scales, offsets = [np.array([0.5, 2], np.float16)] * 2, [np.ones(1, np.float16)] * 2
        >>> [y.tolist() for y in all_reduce_quantised(xs, scales, offsets)]
        [[[101.0, -4.0]], [[101.0, -4.0]]]
    """
    check_alike("all_reduce", xs)
    total = np.sum([x.astype(np.int32) for x in xs], axis=0, dtype=np.int32).astype(np.float32)
    columns = xs[0].shape[-1]
    outputs = []
    for r, (scale, offset) in enumerate(zip(scales, offsets, strict=True)):
        if xs[r].dtype != np.int8 or scale.shape not in ((1,), (columns,), (1, columns)):
            raise ValueError(f"all_reduce: scale of rank {r} is {list(scale.shape)}")
        if offset.shape != (1,):
            raise ValueError(f"all_reduce: offset of rank {r} is {list(offset.shape)}, not [1]")
        with np.errstate(all="ignore"):
            shift = np.float32(len(xs)) * offset.astype(np.float32)
            y = (total + shift) * scale.reshape(-1).astype(np.float32)
        outputs.append(rounded(y, "float16"))
    return outputs


_EVEN = Even(
    "all_reduce",
    lambda size, count, root: ([count] * size, [0] * size),
    rows=lambda size, shape: shape[0],
    reduction="allReduceType",
)


def _cases(size: int) -> Iterator[Case]:
    """Yield every dtype with every op, kind of data and shape once."""
    case = partial(_EVEN.case, size)
    yield from every_reduction(case, (size * -(-ALL_PAIRS // size), 1))
    yield from reduced_data(case, (5 * size, 4))
    yield from every_dim(case, 3, op="sum")
    # Fewer elements than ranks, and one more than they can share evenly.
    yield case("shape-one", (1,), "uint8", op="max")
    yield case("shape-odd", (3 * size + 1,), "bfloat16", op="sum")
    yield case("shape-no-rows", (0, 4), "float16", op="sum")
    yield case("shape-huge", (HUGE,), "float64", op="sum")


def _outside(params: Params) -> str:
    # A row with an unknown mode is run, because creation must refuse it.
    mode = params.get("quantType")
    return "quantised" if isinstance(mode, int) and mode in (1, 2) else ""


ALL_REDUCE = Operator(
    name=_EVEN.name,
    operation="AllReduceOperation",
    cases=_cases,
    outputs=lambda params, inputs: each(
        all_reduce(xs_of(inputs), _EVEN.op(params)) for _ in inputs
    ),
    layout=_EVEN.layout,
    even_case=_EVEN.case,
    params=_EVEN.op_param,
    accuracy=COMPUTES,
    reductions=(*ATB_REDUCE_OPS, "prod"),
    more_dtypes=lambda params: {"float64", "uint8"},
    outside=_outside,
)
