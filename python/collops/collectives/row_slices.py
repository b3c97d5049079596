"""What the calls share in which rows go from rank to rank: their parts of x and of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.collectives.plain_tensors import both_as_bytes
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
    """The core's plan: rows for each rank and from each, one after the other.

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
    whole = [1, *row], 0, element.unit, element.name
    return core().plan_exchange(
        name, operation, len(sends), whole, sends, receives, root, list(sizes)
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
