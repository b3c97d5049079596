"""broadcast of the plain level: from a user's call to a call of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.collectives.plain_tensors import as_bytes, as_tensor
from collops.collectives.plans import check_root

if TYPE_CHECKING:
    from collops.collectives.level import PlainLevel

_NAME = "broadcast"
_OPERATION = "Broadcast"  # by which the ranks know the call


class Broadcast:
    """broadcast of one communicator. One thread at a time, as the communicator."""

    def __init__(self, level: PlainLevel) -> None:
        self._level = level

    def __call__(self, x: Any, root: int) -> Any:
        """x, which holds the root's elements now."""
        try:
            root = check_root(_NAME, root, self._level.size)
            data = as_tensor(_NAME, "x", x)
            element = self._level.element(data.dtype)
            if element.number is None:
                data = as_bytes(f"{_NAME}: x", data)
        except Exception as error:
            self._level.refuse(_OPERATION, error)
            raise
        self._level.core.broadcast(data, root, element.name)
        return x
