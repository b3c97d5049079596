"""all_reduce of the plain level: from a user's call to a call of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.collectives.plain_tensors import as_tensor, resolve_out

if TYPE_CHECKING:
    from collops.collectives.level import PlainLevel

_NAME = "all_reduce"
_OPERATION = "AllReduce"  # by which the ranks know the call


class AllReduce:
    """all_reduce of one communicator. One thread at a time, as the communicator."""

    def __init__(self, level: PlainLevel) -> None:
        self._level = level

    def __call__(self, x: Any, op: str, out: Any) -> Any:
        """The reduction, the same on every rank."""
        try:
            number = self._level.op_number(_NAME, op)
            x = as_tensor(_NAME, "x", x)
            self._level.check_reducible(_NAME, x)
            out = resolve_out(_NAME, "out", x, x.shape, out)
        except Exception as error:
            self._level.refuse(_OPERATION, error)
            raise
        self._level.core.all_reduce(x, out, number)
        return out
