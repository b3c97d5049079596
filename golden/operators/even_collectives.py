"""The operators in which every rank's x has the same shape, as one table."""

from __future__ import annotations

from collections.abc import Sequence

from ..data.dtypes import Array
from .all_gather import all_gather
from .all_reduce import all_reduce
from .all_to_all import all_to_all
from .broadcast import broadcast
from .reduce_scatter import reduce_scatter

EVEN_OPERATORS = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all")


def even_outputs(
    operator: str,
    xs: Sequence[Array],
    *,
    op: str = "sum",
    dtype: str = "",
    root: int = 0,
    transpose: bool = False,
) -> list[Array]:
    """Return what every rank must get of one of EVEN_OPERATORS; of broadcast, in x's place.

    Args:
        operator: one of EVEN_OPERATORS.
        xs: x of every rank.
        op: the reduction, where the operator reduces.
        dtype: name of x's dtype; empty: as the arrays have it.
        root: whose x all get, of broadcast.
        transpose: whether all_to_all exchanges blocks of columns.

    Raises:
        ValueError: the operator is unknown, or its reference finds the arguments wrong.

    Example:
        >>> import numpy as np
        >>> [y.tolist() for y in even_outputs("broadcast", [np.zeros(1), np.ones(1)], root=1)]
        [[1.0], [1.0]]
    """
    if operator == "all_gather":
        return [all_gather(xs) for _ in xs]
    if operator == "reduce_scatter":
        return reduce_scatter(xs, op, dtype or None)
    if operator == "all_reduce":
        return [all_reduce(xs, op, dtype or None) for _ in xs]
    if operator == "broadcast":
        return [broadcast(xs, root) for _ in xs]
    if operator == "all_to_all":
        return all_to_all(xs, transpose=transpose)
    raise ValueError(f"operator {operator!r} is none of {', '.join(EVEN_OPERATORS)}")


def even_blocks(
    operator: str, rank_size: int, count: int, root: int = 0
) -> tuple[list[int], list[int]]:
    """Return counts and displacements of the V operator that does the same.

    x has `count` elements. all_gather and broadcast are an all_gather_v, reduce_scatter and
    all_reduce a reduce_scatter_v. all_to_all is an all_to_all_v: the numbers are those of what a
    rank receives from each.

    Example:
        >>> even_blocks("all_gather", 2, 6), even_blocks("reduce_scatter", 2, 6)
        (([6, 6], [0, 6]), ([3, 3], [0, 3]))
        >>> even_blocks("all_reduce", 2, 6), even_blocks("broadcast", 2, 6, root=1)
        (([6, 6], [0, 0]), ([0, 6], [0, 0]))
        >>> even_blocks("all_to_all", 2, 6)
        ([3, 3], [0, 3])
    """
    ranks = range(rank_size)
    if operator == "broadcast":
        return [count if r == root else 0 for r in ranks], [0] * rank_size
    if operator == "all_reduce":
        return [count] * rank_size, [0] * rank_size
    if operator not in EVEN_OPERATORS:
        raise ValueError(f"operator {operator!r} is none of {', '.join(EVEN_OPERATORS)}")
    each = count if operator == "all_gather" else count // rank_size
    return [each] * rank_size, [each * r for r in ranks]


def gathers(operator: str) -> bool:
    """Return whether every output has the blocks of all ranks, in the places that one list names.

    Example:
        >>> gathers("broadcast"), gathers("reduce_scatter_v")
        (True, False)
    """
    return operator in ("all_gather_v", "all_gather", "broadcast", "all_to_all")
