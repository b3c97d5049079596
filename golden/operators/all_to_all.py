"""AllToAll: rank r gets part r of every rank's x, in rank order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from ..data.dtypes import DTYPES, Array
from .case import Case
from .case_lists import every_dim, every_dtype, special_data
from .even import Even, check_alike, equal_parts
from .operator import Inputs, Operator, Outputs, Params, each, xs_of

# A prime number of elements which, times the ranks, is longer than a chunk of a pipeline.
_HUGE = 65_537
# The dtypes that ATB supports with transpose.
_TRANSPOSED = {"float16", "bfloat16", "int8"}


def all_to_all(xs: Sequence[Array], *, transpose: bool = False) -> list[Array]:
    """Return the outputs of AllToAll, one per rank: the exchange of equal parts.

    Without `transpose`, with b = numel(x) / P; parts may cut rows, and the output has x's shape:

    `output_r.flat[q * b : (q + 1) * b] = x_q.flat[r * b : (r + 1) * b]`, for all ranks q

    With `transpose`, with x [d0, d1] and w = d1 / P; the output is [P * d0, w]:

    `output_r[q * d0 : (q + 1) * d0, :] = x_q[:, r * w : (r + 1) * w]`, for all ranks q

    So a matrix whose P * d0 rows are distributed becomes one whose columns are distributed.
    In both forms the flat output has P parts of b elements, and part q is that of rank q.

    Errors of the operator, in the order of its checks:

    - creation: `transpose` with backend hccl, which ATB does not support: 1
    - infer_shape, after the checks that all operators have (1 input: 5; 0 or more than 8 dims: 8;
      sizes: 9; dtype, format: 13): with `transpose` x is not 2-D: 16; P does not divide d1: 8.
      Without it P does not divide numel(x): 8. Then an output over 256 GB: 9
    - get_workspace_size: as all operators; x and the output must not share memory: 14
    - together: the ranks disagree on transpose, dtype, x's shape or rankRoot: 102

    dtypes: all of DTYPES, with and without `transpose`. d0 may be 0.

    Args:
        xs: x of every rank, of one shape and dtype; bfloat16 as uint16 bits.
        transpose: exchange blocks of columns, not of elements.

    Returns:
        One new array per rank, of x's dtype.

    Raises:
        ValueError: shapes or dtypes differ, or x cannot be divided evenly.

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
        raise ValueError(f"all_to_all: {count} {what} do not divide evenly among {ranks} ranks")


_EVEN = Even("all_to_all", equal_parts, rows=lambda size, shape: shape[0])


def _cases(size: int) -> Iterator[Case]:
    """Yield every dtype with and without transpose, and every kind of shape."""
    case = partial(_EVEN.case, size)
    yield from every_dtype(case, (size, 6))
    yield from special_data(case, (37, size))
    yield case("shape-cut-rows", (5, 3 * size), "float32")
    yield from every_dim(case, 3 * size)
    yield case("shape-one-each", (size,), "uint8")
    yield case("shape-no-rows", (0, 4), "int32")
    yield case("shape-huge", (size, _HUGE), "int64")

    def columns(name: str, shape: tuple[int, int], dtype: str, kind: str = "index") -> Case:
        name = f"transpose-{name.removeprefix('data-')}"
        return _EVEN.case(size, name, shape, dtype, kind=kind, transpose=True)

    yield from every_dtype(columns, (3, 5 * size))
    yield from special_data(columns, (37, 2 * size))
    yield columns("one-row", (1, 7 * size), "float32")
    yield columns("one-column-each", (11, size), "int16")
    yield columns("one-element-each", (1, size), "uint8")
    yield columns("no-rows", (0, 2 * size), "int32")
    yield columns("tall", (4099, 3 * size), "float16")
    yield columns("huge", (2, _HUGE * size), "int64")


def _outputs(params: Params, inputs: Inputs) -> Outputs:
    return each(all_to_all(xs_of(inputs), transpose=bool(params.get("transpose", False))))


def _more_dtypes(params: Params) -> set[str]:
    return set(DTYPES) - _TRANSPOSED if params.get("transpose") else {"float64", "uint8", "bool"}


ALL_TO_ALL = Operator(
    name=_EVEN.name,
    operation="AllToAllOperation",
    cases=_cases,
    outputs=_outputs,
    layout=_EVEN.layout,
    even_case=_EVEN.case,
    params=lambda case: {"transpose": case.transpose},
    more_dtypes=_more_dtypes,
)
