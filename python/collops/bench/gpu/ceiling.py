"""The copy ceiling of a GPU: what copies of as many bytes take as a collective has to move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from collops.bench.collectives.report import LIMIT
from collops.bench.measure import Variant

if TYPE_CHECKING:
    from collops.bench.collectives.variants import CollectiveVariants


def copy_ceiling(own: CollectiveVariants) -> Variant:
    """Copies inside the GPU's memory on all ranks' streams at once; a call of all ranks.

    The collective has to read every x once and to write every result once: (P + 1) * S bytes for an
    AllGatherV or a ReduceScatterV of P ranks and S bytes. A copy reads and writes, so the ranks
    copy half as many bytes, each an equal part of them.
    """
    item = own.element.bits.itemsize
    own_bytes = (own.x_rows(own.rank) + own.result_rows()) * item
    moved = int(own.work.all_reduce(np.array([own_bytes], np.int64), op="sum")[0])
    elements = max(1, moved // (2 * own.size * item))
    source: Any = own.element.matrix(elements, 1)
    target: Any = own.element.matrix(elements, 1)
    own.element.poison(source)
    copied = elements * item
    copy = own.place.stream.copy

    def run() -> None:
        copy(target.array.ptr, source.array.ptr, copied)

    variant = Variant(LIMIT, LIMIT, [("move", run)], held_bytes=2 * copied)
    variant.facts["copied_bytes"] = copied * own.size
    return variant
