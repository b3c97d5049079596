"""What the cases of the even collectives have in common."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ..data.dtypes import FLOAT_DTYPES, REDUCE_DTYPES, is_float
from ..data.reduction import REDUCE_OPS
from .case import Case
from .even_collectives import even_blocks

# A prime number of elements that is longer than one chunk of a pipeline may be.
HUGE = 131_101
# Rows of a multiple of P in which data of kind "special" shows every pair of extremes of two ranks.
_PAIR_ROWS = 2 * 17 * 17


def even_case(
    operator: str,
    name: str,
    size: int,
    shape: tuple[int, ...],
    dtype: str,
    *,
    op: str = "",
    kind: str = "index",
    root: int = 0,
    transpose: bool = False,
    seed: int = 0,
) -> Case:
    """Return a case in which x of every rank has the same shape.

    Example:
        >>> even_case("reduce_scatter", "tiny", 2, (4, 3), "int8", op="sum").rows
        (2, 2)
    """
    counts, displs = even_blocks(operator, size, prod(shape), root)
    heights = {"all_gather": size, "reduce_scatter": shape[0] // size}
    rows = size * shape[0] if transpose else heights.get(operator, shape[0])
    return Case(
        operator=operator,
        name=name,
        rank_size=size,
        dtype=dtype,
        counts=tuple(counts),
        displs=tuple(displs),
        x_shapes=(shape,) * size,
        rows=(rows,) * size,
        op=op,
        kind=kind,
        seed=seed,
        root=root,
        transpose=transpose,
    )


def even_reductions(operator: str, size: int, seed: int) -> Iterator[Case]:
    """Yield every dtype with every op, and sums of every kind of data.

    Example:
        >>> len(list(even_reductions("all_reduce", 2, 0))) > 40
        True
    """
    rows = size * -(-_PAIR_ROWS // size)
    for dtype in REDUCE_DTYPES:
        for op in REDUCE_OPS:
            if op != "avg" or is_float(dtype):
                name = f"{op}-{dtype}"
                yield even_case(
                    operator, name, size, (rows, 1), dtype, op=op, kind="special", seed=seed
                )
    pairs = [("cancel", dtype) for dtype in FLOAT_DTYPES]
    pairs += [("index", "float32"), ("index", "int64"), ("exact", "bfloat16")]
    pairs += [("random", "float16"), ("random", "float32")]
    for kind, dtype in pairs:
        name = f"data-{kind}-{dtype}"
        yield even_case(operator, name, size, (5 * size, 4), dtype, op="sum", kind=kind, seed=seed)
