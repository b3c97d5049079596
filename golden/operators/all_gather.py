"""AllGather: every rank's x, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from ..data.dtypes import Array
from .case import Case
from .case_lists import HUGE, every_dim, every_dtype, special_data
from .even import Even, check_alike, equal_blocks
from .operator import Operator, each, xs_of


def all_gather(xs: Sequence[Array]) -> Array:
    """Return the output of AllGather, the same on every rank.

    `output[r] = xs[r]`, for every rank r

    Args:
        xs: x of every rank, [d0, ...] of one shape and dtype.

    Returns:
        [P, d0, ...] of x's dtype, a new array. The plain level returns it reshaped to
        [P * d0, ...].

    Raises:
        ValueError: shapes or dtypes differ.

    Example:
        >>> all_gather([np.array([[1, 2]]), np.array([[3, 4]])]).tolist()
        [[[1, 2]], [[3, 4]]]
    """
    check_alike("all_gather", xs)
    return np.stack(xs)


_EVEN = Even("all_gather", equal_blocks, rows=lambda size, shape: size)


def _cases(size: int) -> Iterator[Case]:
    """Yield every dtype, kind of data and number of dims once."""
    case = partial(_EVEN.case, size)
    yield from every_dtype(case, (3, 4))
    yield from special_data(case, (37, 5))
    yield from every_dim(case, 3, 7)
    yield case("shape-one", (1,), "uint8")
    yield case("shape-huge", (HUGE,), "int64")


ALL_GATHER = Operator(
    name=_EVEN.name,
    operation="AllGatherOperation",
    cases=_cases,
    outputs=lambda params, inputs: each(all_gather(xs_of(inputs)) for _ in inputs),
    layout=_EVEN.layout,
    even_case=_EVEN.case,
)
