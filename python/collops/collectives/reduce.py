"""reduce of the plain level: from a user's call to a call of the core."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from collops.collectives.plain_tensors import as_tensor, resolve_out
from collops.collectives.plans import check_root
from collops.collectives.row_slices import only_at

if TYPE_CHECKING:
    from collops.collectives.level import PlainLevel

_NAME = "reduce"
_OPERATION = "Reduce"  # by which the ranks know the call


class Reduce:
    """reduce of one communicator: a reduction of which one rank gets all rows.

    One thread at a time, as the communicator.
    """

    def __init__(self, level: PlainLevel) -> None:
        self._level = level

    def __call__(self, x: Any, op: str, root: int) -> Any:
        """The reduction on the root, None elsewhere."""
        level = self._level
        try:
            root = check_root(_NAME, root, level.size)
            number = level.op_number(_NAME, op)
            x = as_tensor(_NAME, "x", x)
            level.check_reducible(_NAME, x)
            counts = only_at(root, math.prod(x.shape), level.size)
            blocks = level.make_blocks(_OPERATION, counts, root=root)
            shape = tuple(x.shape) if level.rank == root else (0,)
            out = resolve_out(_NAME, "out", x, shape, None)
        except Exception as error:
            level.refuse(_OPERATION, error)
            raise
        level.core.reduce_scatterv(x, out, blocks, number)
        return out if level.rank == root else None
