"""What the calls share in which rows go from rank to rank: their parts of x and of the result."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from collops.collectives.plain_tensors import both_as_bytes
from collops.collectives.plans import check_volume
from collops.core import core

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.collectives.level import Element, PlainLevel


def make_slices(
    name: str,
    operation: str,
    row: Sequence[int],
    element: Element,
    sends: list[int],
    receives: list[int],
    root: int = 0,
    sizes: Sequence[int] = (),
) -> Any:
    """The core's Slices: rows for each rank and from each, one after the other.

    Args:
        name: the method, for messages.
        operation: by which the ranks know the call.
        row: shape of one row, the same on every rank.
        element: of x.
        sends: rows for each rank.
        receives: rows from each rank.
        root: the rank that has, or gets, all rows, if one does.
        sizes: the list that says all of it, where every rank passes the same one; without it the
            ranks compare what each sends with what the other expects.
    """
    length = math.prod(row)
    for rows in (sum(sends), sum(receives)):
        check_volume(name, rows, length * element.unit)
    shape = [-1] + ([length] if length != 1 else [])
    return core().Slices(
        name, operation, sends, receives, length * element.unit, element.name, shape, root, sizes
    )


def make_question(level: PlainLevel, operation: str, x: Any) -> Any:
    """The core's RowExchange: what ranks agree on before they tell each other rows of x's kind."""
    return core().RowExchange(operation, 0, [(level.type_name(x.dtype), list(x.shape[1:]))])


def as_moved(level: PlainLevel, name: str, x: Any, out: Any) -> tuple[Any, Any]:
    """The two tensors as the core reads them: themselves, or the bytes of other elements."""
    if level.element(x.dtype).number is not None:
        return x, out
    return both_as_bytes(name, x, out)


def only_at(rank: int, rows: int, size: int) -> list[int]:
    """A list of zeros but for one rank.

    Example:
        >>> only_at(1, 5, 3)
        [0, 5, 0]
    """
    return [rows if r == rank else 0 for r in range(size)]
