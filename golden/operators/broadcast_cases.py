"""The cases of Broadcast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..data.dtypes import DTYPES
from .case import Case
from .even_case import HUGE, even_case


def broadcast_cases(rank_sizes: Sequence[int] = (2, 3, 4), *, seed: int = 0) -> list[Case]:
    """Return the cases of Broadcast: every dtype, root, kind of data and number of dims once.

    Args:
        rank_sizes: numbers of ranks, >= 1.
        seed: seed of the cases' data.

    Returns:
        Cases with unique ids, the same list on every call.

    Example:
        >>> {case.root for case in broadcast_cases((3,))}
        {0, 1, 2}
    """
    return [case for size in rank_sizes for case in _cases(size, seed)]


def _cases(size: int, seed: int) -> Iterator[Case]:
    operator = "broadcast"
    for number, dtype in enumerate(DTYPES):
        root = number % size
        yield even_case(operator, f"dtype-{dtype}", size, (3, 4), dtype, root=root, seed=seed)
    for root in range(size):
        yield even_case(operator, f"root-{root}", size, (5, 7), "float32", root=root, seed=seed)
    for dtype in ("float16", "bfloat16", "float64"):
        name = f"data-special-{dtype}"
        yield even_case(operator, name, size, (37, 5), dtype, kind="special", seed=seed)
    last = size - 1
    for dims in range(1, 9):
        shape = (3, 2, 1, 2, 1, 2, 2, 1)[:dims]
        yield even_case(operator, f"shape-{dims}d", size, shape, "int16", root=last, seed=seed)
    yield even_case(operator, "shape-no-rows", size, (0, 4), "int32", seed=seed)
    yield even_case(operator, "shape-huge", size, (HUGE,), "int64", root=last, seed=seed)
