"""Every collective of HCCL, called right, for two ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.npu.simulated.simulated_rank import SUM, Memory, Rank, type_of

FLOAT32, INT16, UINT8, FLOAT64 = (type_of(t) for t in ("float32", "int16", "uint8", "float64"))
COUNT = 4
LISTS = np.array([[2, 2], [0, 2]], np.uint64)


def right_calls(x: Any, y: Any, count: Any = COUNT, kind: int = FLOAT32, op: int = SUM) -> Any:
    """Every collective of two ranks, by name; x and y have room for two ranks' elements."""
    lists = LISTS.copy()
    if count != COUNT:
        lists[0, 0] = count
    counts, displs, own = lists[0], lists[1], int(lists[0, 0])
    return {
        "HcclAllGather": (x, y, count, kind),
        "HcclAllGatherV": (x, own, y, counts, displs, kind),
        "HcclReduceScatter": (x, y, count, kind, op),
        "HcclReduceScatterV": (x, counts, displs, y, own, kind, op),
        "HcclAllReduce": (x, y, count, kind, op),
        "HcclReduce": (x, y, count, kind, op, 0),
        "HcclBroadcast": (x, count, kind, 1),
        "HcclAlltoAllV": (x, counts, displs, kind, y, counts, displs, kind),
        "HcclBarrier": (),
    }


NAMES = list(right_calls(0, 0))


def both(one: Rank) -> tuple[Memory, Memory]:
    return one.device(np.ones(2 * COUNT, np.float32)), one.empty(2 * COUNT, np.float32)
