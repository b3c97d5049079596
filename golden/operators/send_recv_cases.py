"""The cases of Send and of Recv: one message each.

Both operators take part in every case. What varies is what Send sees (who, how much, which data) in
the cases of send, and what Recv sees (the shape it asks for) in those of recv.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import permutations

from ..data.dtypes import DTYPES
from .case import Case
from .even_case import HUGE

_Shape = tuple[int, ...]


def send_cases(rank_sizes: Sequence[int] = (2, 3, 4), *, seed: int = 0) -> list[Case]:
    """Return the cases of Send: every dtype, kind of data, length and ordered pair of ranks.

    Args:
        rank_sizes: numbers of ranks, >= 2.
        seed: seed of the cases' data.

    Returns:
        Cases with unique ids, the same list on every call.

    Example:
        >>> {(case.root, case.peer) for case in send_cases((3,))} == set(permutations(range(3), 2))
        True
    """
    return [case for size in rank_sizes for case in _sent(size, seed)]


def recv_cases(rank_sizes: Sequence[int] = (2, 3, 4), *, seed: int = 0) -> list[Case]:
    """Return the cases of Recv: every dtype and number of dims, also other ones than are sent.

    Args:
        rank_sizes: numbers of ranks, >= 2.
        seed: seed of the cases' data.

    Returns:
        Cases with unique ids, the same list on every call.

    Example:
        >>> [case.x_shapes for case in recv_cases((2,)) if case.name == "shape-rows-of-columns"]
        [((10, 3), (3, 10))]
    """
    return [case for size in rank_sizes for case in _received(size, seed)]


def _sent(size: int, seed: int) -> Iterator[Case]:
    pairs = list(permutations(range(size), 2))
    for number, dtype in enumerate(DTYPES):
        yield _case("send", f"dtype-{dtype}", size, pairs[number % len(pairs)], (3, 5), dtype, seed)
    for pair in pairs:
        yield _case("send", f"pair-{pair[0]}-to-{pair[1]}", size, pair, (7,), "float32", seed)
    for dtype in ("float16", "bfloat16", "float64"):
        name = f"data-special-{dtype}"
        yield _case("send", name, size, (0, size - 1), (37, 5), dtype, seed, kind="special")
    for name, shape in (("no-rows", (0, 4)), ("one", (1,)), ("prime", (8191,)), ("huge", (HUGE,))):
        yield _case("send", f"length-{name}", size, (size - 1, 0), shape, "int64", seed)


def _received(size: int, seed: int) -> Iterator[Case]:
    pair = (size - 1, 0)
    for dtype in DTYPES:
        yield _case("recv", f"dtype-{dtype}", size, pair, (4, 3), dtype, seed)
    for dims in range(1, 9):
        shape = (3, 2, 1, 2, 1, 2, 2, 1)[:dims]
        yield _case("recv", f"shape-{dims}d", size, pair, shape, "int16", seed)
        flat = (math.prod(shape),)
        if dims > 1:
            yield _case("recv", f"shape-{dims}d-of-1d", size, pair, flat, "int8", seed, held=shape)
    held = (10, 3)
    yield _case("recv", "shape-rows-of-columns", size, pair, (3, 10), "float16", seed, held=held)
    yield _case("recv", "shape-no-rows", size, pair, (0, 4), "int32", seed, held=(0,))
    yield _case("recv", "shape-huge", size, pair, (HUGE, 1), "bfloat16", seed, held=(HUGE,))


def _case(
    operator: str,
    name: str,
    size: int,
    pair: tuple[int, int],
    shape: _Shape,
    dtype: str,
    seed: int,
    *,
    kind: str = "index",
    held: _Shape | None = None,
) -> Case:
    """Return a message of `shape`; its receiver asks for the shape `held`, if that is another."""
    source, destination = pair
    held = shape if held is None else held
    shapes = [held if rank == destination else shape for rank in range(size)]
    return Case(
        operator=operator,
        name=name,
        rank_size=size,
        dtype=dtype,
        counts=tuple(math.prod(shape) if rank == source else 0 for rank in range(size)),
        displs=(0,) * size,
        x_shapes=tuple(shapes),
        rows=tuple(own[0] for own in shapes),
        kind=kind,
        seed=seed,
        root=source,
        peer=destination,
    )
