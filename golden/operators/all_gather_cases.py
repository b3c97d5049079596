"""The cases of AllGather."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..data.dtypes import DTYPES
from .case import Case
from .even_case import HUGE, even_case


def all_gather_cases(rank_sizes: Sequence[int] = (2, 3, 4), *, seed: int = 0) -> list[Case]:
    """Return the cases of AllGather: every dtype, kind of data and number of dims once.

    Args:
        rank_sizes: numbers of ranks, >= 1.
        seed: seed of the cases' data.

    Returns:
        Cases with unique ids, the same list on every call.

    Example:
        >>> {case.dtype for case in all_gather_cases((2,))} == set(DTYPES)
        True
    """
    return [case for size in rank_sizes for case in _cases(size, seed)]


def _cases(size: int, seed: int) -> Iterator[Case]:
    operator = "all_gather"
    for dtype in DTYPES:
        yield even_case(operator, f"dtype-{dtype}", size, (3, 4), dtype, seed=seed)
    for dtype in ("float16", "bfloat16", "float64"):
        name = f"data-special-{dtype}"
        yield even_case(operator, name, size, (37, 5), dtype, kind="special", seed=seed)
    for dims in range(1, 8):
        shape = (3, 2, 1, 2, 1, 2, 2)[:dims]
        yield even_case(operator, f"shape-{dims}d", size, shape, "int16", seed=seed)
    yield even_case(operator, "shape-one", size, (1,), "uint8", seed=seed)
    yield even_case(operator, "shape-huge", size, (HUGE,), "int64", seed=seed)
