"""AllReduce: the reduction of every rank's x, on every rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ..data.dtypes import Array, name_of
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
        >>> import numpy as np
        >>> all_reduce([np.array([1, 5], np.int8), np.array([3, 2], np.int8)], "max").tolist()
        [3, 5]
    """
    check_alike("all_reduce", xs)
    return reduce_ranks(xs, op, dtype or name_of(xs[0]))


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
