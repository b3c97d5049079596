"""gatherv of the plain level: from a user's call to calls of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.collectives.plain_tensors import as_tensor, normal_dim, resolve_out
from collops.collectives.plans import Kept, bad_argument, check_root, check_sizes, sizes_as_tuple
from collops.collectives.row_slices import as_moved, make_question, make_slices, only_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.collectives.level import PlainLevel

_NAME = "gatherv"
# By which the ranks know the call, and the exchange of sizes before it.
_OPERATION = "GatherV"
_EXCHANGE = "GatherV without sizes"


class GatherV:
    """gatherv of one communicator. One thread at a time, as the communicator."""

    def __init__(self, level: PlainLevel) -> None:
        self._level = level
        self._plans: Kept[Any] = Kept()  # collops._core.Slices
        self._questions: Kept[Any] = Kept()  # collops._core.RowExchange

    def __call__(self, x: Any, sizes: Sequence[int] | None, root: int) -> Any:
        """All rows on the root, None elsewhere."""
        level = self._level
        asks = sizes is None
        try:
            root = check_root(_NAME, root, level.size)
            x = as_tensor(_NAME, "x", x)
            normal_dim(_NAME, "x", x, 0)
            question = self._question(x) if asks else None
        except Exception as error:
            level.refuse(_EXCHANGE if asks else _OPERATION, error)
            raise
        if question is not None:
            sizes = level.core.exchange_rows(question, x.shape[0])
        try:
            rows = tuple(check_sizes(_NAME, sizes_as_tuple(_NAME, sizes), level.size))
            if rows[level.rank] != x.shape[0]:
                bad_argument(
                    f"{_NAME}: sizes[{level.rank}] is {rows[level.rank]}, but x has {x.shape[0]} "
                    f"rows on rank {level.rank}"
                )
            slices = self._slices(x, rows, root)
            height = sum(rows) if level.rank == root else 0
            out = resolve_out(_NAME, "out", x, (height, *x.shape[1:]), None)
            source, target = as_moved(level, _NAME, x, out)
        except Exception as error:
            level.refuse(_OPERATION, error)
            raise
        level.core.exchange_v(source, target, slices)
        return out if level.rank == root else None

    def _question(self, x: Any) -> Any:
        key = x.shape[1:], x.dtype
        known = self._questions.get(key)
        return known or self._questions.keep(key, make_question(self._level, _EXCHANGE, x))

    def _slices(self, x: Any, rows: tuple[int, ...], root: int) -> Any:
        level, element = self._level, self._level.element(x.dtype)
        key = x.shape[1:], rows, root, element.unit, element.name
        known = self._plans.get(key)
        if known is None:
            sends = only_at(root, rows[level.rank], level.size)
            receives = list(rows) if level.rank == root else [0] * level.size
            slices = make_slices(
                _NAME, _OPERATION, x.shape[1:], element, sends, receives, root, rows
            )
            known = self._plans.keep(key, slices)
        return known
