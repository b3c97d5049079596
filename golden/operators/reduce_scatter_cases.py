"""The cases of ReduceScatter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..data.reduction import REDUCE_OPS
from .case import Case
from .even_case import HUGE, even_case, even_reductions


def reduce_scatter_cases(
    rank_sizes: Sequence[int] = (2, 3, 4),
    *,
    ops: Sequence[str] = REDUCE_OPS,
    seed: int = 0,
) -> list[Case]:
    """Return the cases of ReduceScatter: every dtype with every op, kind of data and shape once.

    Args:
        rank_sizes: numbers of ranks, >= 1.
        ops: keep only cases of these ops.
        seed: seed of the cases' data.

    Returns:
        Cases with unique ids, the same list on every call.

    Example:
        >>> sorted({case.op for case in reduce_scatter_cases((2,), ops=("sum", "max"))})
        ['max', 'sum']
    """
    cases = (case for size in rank_sizes for case in _cases(size, seed))
    return [case for case in cases if case.op in ops]


def _cases(size: int, seed: int) -> Iterator[Case]:
    operator = "reduce_scatter"
    yield from even_reductions(operator, size, seed)
    for dims in range(1, 9):
        shape = (2 * size, 2, 1, 2, 1, 2, 2, 1)[:dims]
        yield even_case(operator, f"shape-{dims}d", size, shape, "int16", op="sum", seed=seed)
    yield even_case(operator, "shape-row-each", size, (size, 3), "uint8", op="max", seed=seed)
    yield even_case(operator, "shape-no-rows", size, (0, 4), "float16", op="sum", seed=seed)
    huge = (size * (HUGE // size),)
    yield even_case(operator, "shape-huge", size, huge, "float64", op="sum", seed=seed)
