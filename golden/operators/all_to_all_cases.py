"""The cases of AllToAll."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..data.dtypes import DTYPES
from .case import Case
from .even_case import even_case

# A prime number of elements, times the ranks longer than one chunk of a pipeline may be.
_HUGE = 65_537


def all_to_all_cases(rank_sizes: Sequence[int] = (2, 3, 4), *, seed: int = 0) -> list[Case]:
    """Return the cases of AllToAll: every dtype with and without transpose, every kind of shape.

    Args:
        rank_sizes: numbers of ranks, >= 1.
        seed: seed of the cases' data.

    Returns:
        Cases with unique ids, the same list on every call.

    Example:
        >>> {case.dtype for case in all_to_all_cases((2,)) if case.transpose} == set(DTYPES)
        True
    """
    return [case for size in rank_sizes for case in (*_parts(size, seed), *_columns(size, seed))]


def _parts(size: int, seed: int) -> Iterator[Case]:
    """Yield cases without transpose: x is cut into equal parts, wherever its rows end."""
    operator = "all_to_all"
    for dtype in DTYPES:
        yield even_case(operator, f"dtype-{dtype}", size, (size, 6), dtype, seed=seed)
    for dtype in ("float16", "bfloat16", "float64"):
        name = f"data-special-{dtype}"
        yield even_case(operator, name, size, (37, size), dtype, kind="special", seed=seed)
    yield even_case(operator, "shape-cut-rows", size, (5, 3 * size), "float32", seed=seed)
    for dims in range(1, 9):
        shape = (3 * size, 2, 1, 2, 1, 2, 2, 1)[:dims]
        yield even_case(operator, f"shape-{dims}d", size, shape, "int16", seed=seed)
    yield even_case(operator, "shape-one-each", size, (size,), "uint8", seed=seed)
    yield even_case(operator, "shape-no-rows", size, (0, 4), "int32", seed=seed)
    yield even_case(operator, "shape-huge", size, (size, _HUGE), "int64", seed=seed)


def _columns(size: int, seed: int) -> Iterator[Case]:
    """Yield cases with transpose: x is cut into equal blocks of columns."""

    def case(name: str, shape: tuple[int, int], dtype: str, kind: str = "index") -> Case:
        return even_case(
            "all_to_all",
            f"transpose-{name}",
            size,
            shape,
            dtype,
            kind=kind,
            transpose=True,
            seed=seed,
        )

    for dtype in DTYPES:
        yield case(f"dtype-{dtype}", (3, 5 * size), dtype)
    for dtype in ("float16", "bfloat16", "float64"):
        yield case(f"special-{dtype}", (37, 2 * size), dtype, "special")
    yield case("one-row", (1, 7 * size), "float32")
    yield case("one-column-each", (11, size), "int16")
    yield case("one-element-each", (1, size), "uint8")
    yield case("no-rows", (0, 2 * size), "int32")
    yield case("tall", (4099, 3 * size), "float16")
    yield case("huge", (2, _HUGE * size), "int64")
