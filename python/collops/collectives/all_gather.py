"""all_gather of the plain level: from a user's call to a call of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.collectives.plain_tensors import as_tensor, both_as_bytes, normal_dim, resolve_out
from collops.collectives.plans import Kept, Plan, make_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.collectives.level import Element, PlainLevel

_NAME = "all_gather"
_OPERATION = "AllGather"  # by which the ranks know the call


class AllGather:
    """all_gather of one communicator. One thread at a time, as the communicator."""

    def __init__(self, level: PlainLevel) -> None:
        self._level = level
        self._plans: Kept[Plan] = Kept()

    def __call__(self, x: Any, out: Any) -> Any:
        """The gathered tensor."""
        try:
            x = as_tensor(_NAME, "x", x)
            normal_dim(_NAME, "x", x, 0)
            element = self._level.element(x.dtype)
            key = x.shape, element.unit, element.name
            plan = self._plans.get(key) or self._plans.keep(key, self._plan(x.shape, element))
            out = resolve_out(_NAME, "out", x, plan.out_shape, out)
            source, target = x, out
            if element.number is None:
                source, target = both_as_bytes(_NAME, x, out)
        except Exception as error:
            self._level.refuse(_OPERATION, error)
            raise
        self._level.core.all_gatherv(source, target, plan.blocks)
        return out

    def _plan(self, shape: Sequence[int], element: Element) -> Plan:
        level = self._level

        def make_blocks(counts: list[int]) -> Any:
            return level.make_blocks(_OPERATION, counts, type=element.name)

        rows = [int(shape[0])] * level.size
        return make_plan(_NAME, make_blocks, shape, 0, rows, sum(rows), element.unit)
