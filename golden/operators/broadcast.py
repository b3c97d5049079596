"""Broadcast: the root's x on every rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from ..data.dtypes import DTYPES, Array
from .case import Case
from .case_lists import HUGE, every_dim, special_data
from .even import Even, check_alike
from .operator import Operator, Params, each, xs_of


def broadcast(xs: Sequence[Array], root: int = 0) -> Array:
    """Return what x holds after a Broadcast, the same on every rank.

    `x_r = xs[root]`, for every rank r

    Args:
        xs: x of every rank, of one shape and dtype.
        root: the rank whose x all ranks get.

    Returns:
        A new array of x's shape and dtype.

    Raises:
        ValueError: shapes or dtypes differ, or `root` is not a rank.

    Example:
        >>> broadcast([np.array([1, 2]), np.array([3, 4])], root=1).tolist()
        [3, 4]
    """
    check_alike("broadcast", xs)
    if not 0 <= root < len(xs):
        raise ValueError(f"broadcast: root must be in [0, {len(xs)}), got {root}")
    return np.array(xs[root])


def _places(size: int, count: int, root: int) -> tuple[list[int], list[int]]:
    return [count if r == root else 0 for r in range(size)], [0] * size


_EVEN = Even("broadcast", _places, rows=lambda size, shape: shape[0])


def _cases(size: int) -> Iterator[Case]:
    """Yield every dtype, root, kind of data and number of dims once."""
    case = partial(_EVEN.case, size)
    for number, dtype in enumerate(DTYPES):
        yield case(f"dtype-{dtype}", (3, 4), dtype, root=number % size)
    for root in range(size):
        yield case(f"root-{root}", (5, 7), "float32", root=root)
    yield from special_data(case, (37, 5))
    yield from every_dim(case, 3, root=size - 1)
    yield case("shape-no-rows", (0, 4), "int32")
    yield case("shape-huge", (HUGE,), "int64", root=size - 1)


def _root(params: Params) -> int:
    return int(params.get("rankRoot", 0))


BROADCAST = Operator(
    name=_EVEN.name,
    operation="BroadcastOperation",
    cases=_cases,
    outputs=lambda params, inputs: each(broadcast(xs_of(inputs), _root(params)) for _ in inputs),
    layout=_EVEN.layout,
    even_case=_EVEN.case,
    params=lambda case: {"rankRoot": case.root},
    in_place=True,
)
