"""ReduceScatter: each rank gets one of P equal parts of the reduction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from ..data.dtypes import Array, name_of
from ..data.reduction import ATB_REDUCE_OPS, reduce_ranks
from .case import Case
from .case_lists import ALL_PAIRS, HUGE, every_dim, every_reduction, reduced_data
from .even import Even, check_alike, equal_parts
from .operator import SCATTERS, Operator, each, xs_of


def reduce_scatter(xs: Sequence[Array], op: str = "sum", dtype: str | None = None) -> list[Array]:
    """Return the outputs of ReduceScatter, one per rank.

    `output_r = (xs[0] op ... op xs[P-1])[r * d0 / P : (r + 1) * d0 / P]`, in rank order

    The arithmetic is that of `reduction.reduce_ranks`, exact to the bit.

    Args:
        xs: x of every rank, [d0, ...] of one shape and dtype, P divides d0; bfloat16 as uint16
            bits.
        op: sum, max, min, prod, avg, or of integers band, bor, bxor.
        dtype: name of x's dtype; None reads it from the arrays.

    Returns:
        One new array [d0 / P, ...] per rank, of x's dtype.

    Raises:
        ValueError: shapes or dtypes differ, P does not divide d0, or the dtype has no such `op`.

    Example:
        >>> xs = [np.array([1, 2, 3, 4], np.int32) * s for s in (1, 10)]
        >>> [y.tolist() for y in reduce_scatter(xs)]
        [[11, 22], [33, 44]]
    """
    check_alike("reduce_scatter", xs)
    if len(xs[0]) % len(xs):
        raise ValueError(
            f"reduce_scatter: {len(xs[0])} rows do not divide evenly among {len(xs)} ranks"
        )
    whole = reduce_ranks(xs, op, dtype or name_of(xs[0]))
    return [part.copy() for part in np.split(whole, len(xs))]


_EVEN = Even(
    "reduce_scatter",
    equal_parts,
    rows=lambda size, shape: shape[0] // size,
    reduction="reduceType",
)


def _cases(size: int) -> Iterator[Case]:
    """Yield every dtype with every op, kind of data and shape once."""
    case = partial(_EVEN.case, size)
    yield from every_reduction(case, (size * -(-ALL_PAIRS // size), 1))
    yield from reduced_data(case, (5 * size, 4))
    yield from every_dim(case, 2 * size, op="sum")
    yield case("shape-row-each", (size, 3), "uint8", op="max")
    yield case("shape-no-rows", (0, 4), "float16", op="sum")
    yield case("shape-huge", (size * (HUGE // size),), "float64", op="sum")


REDUCE_SCATTER = Operator(
    name=_EVEN.name,
    operation="ReduceScatterOperation",
    cases=_cases,
    outputs=lambda params, inputs: each(reduce_scatter(xs_of(inputs), _EVEN.op(params))),
    layout=_EVEN.layout,
    even_case=_EVEN.case,
    params=_EVEN.op_param,
    accuracy=SCATTERS,
    reductions=(*ATB_REDUCE_OPS, "prod"),
    more_dtypes=lambda params: {"float64", "uint8"},
)
