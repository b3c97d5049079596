"""Calls on CuPy's arrays and on collops' own, by two ranks as processes of GPU 0.

The arguments are backends.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import numpy as np

import collops
from collops.golden_run.backends import CupyMemory, DeviceMemory, OwnMemory
from collops.testing import run_ranks

DTYPES = ("float32", "float16", "int32", "int64", "uint8")
ROWS = (3, 2)


def wrong(backend: str, kind: type[DeviceMemory], rank: int) -> list[str]:
    """The calls of one rank whose results differ from numpy's."""
    memory = kind()
    memory.load()
    memory.choose_device(rank)
    comm = collops.init(backend=backend)
    found = []
    for dtype in DTYPES:
        blocks = [
            np.arange(r * 40, r * 40 + rows * 8).reshape(rows, 8) for r, rows in enumerate(ROWS)
        ]
        whole = [np.arange(sum(ROWS) * 8).reshape(-1, 8) + 3 * r for r in range(2)]
        own = memory.to_device(blocks[rank].astype(dtype), dtype)
        every = memory.to_device(whole[rank].astype(dtype), dtype)
        first = sum(ROWS[:rank])
        gathered = np.concatenate(blocks).astype(dtype)
        total = (whole[0] + whole[1]).astype(dtype)
        calls: dict[str, tuple[Any, Any]] = {
            "all_gatherv": (lambda x=own: comm.all_gatherv(x, ROWS), gathered),
            "reduce_scatterv": (
                lambda x=every: comm.reduce_scatterv(x, ROWS),
                total[first : first + ROWS[rank]],
            ),
            "all_reduce": (lambda x=every: comm.all_reduce(x), total),
        }
        for name, (call, want) in calls.items():
            comm.barrier()
            got = memory.from_device(call())
            if got.tobytes() != np.ascontiguousarray(want).tobytes():
                found.append(f"{name} of {dtype}")
    comm.barrier()
    comm.close()
    return found


def main() -> int:
    """Each backend with each kind of arrays; 1 if a result was wrong."""
    status = 0
    kinds: list[type[DeviceMemory]] = [OwnMemory]
    if importlib.util.find_spec("cupy") is None:
        print("CuPy is not installed")
    else:
        kinds.append(CupyMemory)
    for backend in sys.argv[1:]:
        for kind in kinds:
            lost = run_ranks(lambda rank, b=backend, k=kind: wrong(b, k, rank), 2)
            print(f"{backend}, {kind.__name__}: {'right' if not any(lost) else lost}", flush=True)
            status |= any(lost)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
