"""Reference of AllToAll: rank r gets part r of every rank's x, in rank order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data.dtypes import Array
from .all_gather import check_alike


def all_to_all(xs: Sequence[Array], *, transpose: bool = False) -> list[Array]:
    """Return the outputs of AllToAll, one per rank: the exchange of equal parts.

    Without `transpose`, with b = numel(x) / P; parts may cut rows, and the output has x's shape:

    `output_r.flat[q * b : (q + 1) * b] = x_q.flat[r * b : (r + 1) * b]`, for all ranks q

    With `transpose`, with x [d0, d1] and w = d1 / P; the output is [P * d0, w]:

    `output_r[q * d0 : (q + 1) * d0, :] = x_q[:, r * w : (r + 1) * w]`, for all ranks q

    So a matrix whose rows are shared out (P * d0 rows) becomes one whose columns are shared out.
    In both, part q of an output, flat, is what came from rank q: P parts of b elements.

    Errors of the operator, in the order of its checks:

    - creation: `transpose` with backend hccl, which ATB's hccl lacks: 1
    - infer_shape, after the checks that all operators have (1 input: 5; 0 or more than 8 dims: 8;
      sizes: 9; dtype, format: 13): with `transpose` x is not 2-D: 16; P does not divide d1: 8.
      Without it P does not divide numel(x): 8. Then an output over 256 GB: 9
    - get_workspace_size: as all operators; x and the output must not share memory: 14
    - together: other transpose, dtype, x's shape, rankRoot: 102

    dtypes: all of DTYPES, with and without `transpose`. d0 may be 0.

    Args:
        xs: x of every rank, of one shape and dtype; bfloat16 as uint16 bits.
        transpose: exchange blocks of columns, not of elements.

    Returns:
        One fresh array per rank, of x's dtype.

    Raises:
        ValueError: shapes or dtypes differ, or x cannot be shared out evenly.

    Example:
        >>> xs = [np.array([[0, 1, 2, 3], [4, 5, 6, 7]]) + 10 * rank for rank in (0, 1)]
        >>> [output.tolist() for output in all_to_all(xs)]
        [[[0, 1, 2, 3], [10, 11, 12, 13]], [[4, 5, 6, 7], [14, 15, 16, 17]]]
        >>> all_to_all(xs, transpose=True)[1].tolist()
        [[2, 3], [6, 7], [12, 13], [16, 17]]
    """
    check_alike("all_to_all", xs)
    ranks, shape = len(xs), xs[0].shape
    if transpose:
        if len(shape) != 2:
            raise ValueError(f"all_to_all: with transpose x must have 2 dims, got {len(shape)}")
        _check_divides(ranks, shape[1], "columns")
        width = shape[1] // ranks
        return [
            np.concatenate([x[:, r * width : (r + 1) * width] for x in xs]) for r in range(ranks)
        ]
    _check_divides(ranks, xs[0].size, "elements")
    parts = [x.reshape(ranks, -1) if x.size else np.zeros((ranks, 0), x.dtype) for x in xs]
    return [np.concatenate([part[r] for part in parts]).reshape(shape) for r in range(ranks)]


def _check_divides(ranks: int, count: int, what: str) -> None:
    if count % ranks:
        raise ValueError(f"all_to_all: {ranks} ranks cannot share {count} {what} evenly")
