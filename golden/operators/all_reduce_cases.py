"""The cases of AllReduce."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..data.reduction import REDUCE_OPS
from .case import Case
from .even_case import HUGE, even_case, even_reductions


def all_reduce_cases(
    rank_sizes: Sequence[int] = (2, 3, 4),
    *,
    ops: Sequence[str] = REDUCE_OPS,
    seed: int = 0,
) -> list[Case]:
    """Return the cases of AllReduce: every dtype with every op, kind of data and shape once.

    Args:
        rank_sizes: numbers of ranks, >= 1.
        ops: keep only cases of these ops.
        seed: seed of the cases' data.

    Returns:
        Cases with unique ids, the same list on every call.

    Example:
        >>> sorted({case.op for case in all_reduce_cases((2,), ops=("sum", "max"))})
        ['max', 'sum']
    """
    cases = (case for size in rank_sizes for case in _cases(size, seed))
    return [case for case in cases if case.op in ops]


def _cases(size: int, seed: int) -> Iterator[Case]:
    operator = "all_reduce"
    yield from even_reductions(operator, size, seed)
    for dims in range(1, 9):
        shape = (3, 2, 1, 2, 1, 2, 2, 1)[:dims]
        yield even_case(operator, f"shape-{dims}d", size, shape, "int16", op="sum", seed=seed)
    # Fewer elements than ranks, and one more than they can share evenly.
    yield even_case(operator, "shape-one", size, (1,), "uint8", op="max", seed=seed)
    yield even_case(operator, "shape-odd", size, (3 * size + 1,), "bfloat16", op="sum", seed=seed)
    yield even_case(operator, "shape-no-rows", size, (0, 4), "float16", op="sum", seed=seed)
    yield even_case(operator, "shape-huge", size, (HUGE,), "float64", op="sum", seed=seed)
