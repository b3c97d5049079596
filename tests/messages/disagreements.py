"""Scenes in which the rank of the highest number calls something else than the others.

What is said of each term stands in tests/refusals; here the ranks race, and read each other's
memory, and a call follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import collops
from tests.messages.scene import Scene
from tests.messages.witness import Witness

Comm = collops.Communicator
Call = Callable[[Witness, Comm], Any]


def gather(*, rows: int = 6, shape: tuple[int, ...] = (), **words: Any) -> Call:
    """all_gatherv of as many rows from every rank; `shape`: of these dimensions."""
    dtype = words.pop("dtype", np.float32)
    count = words.pop("tensors", None)
    sizes, wider = words.pop("sizes", rows), words.pop("wider", 1)

    def call(w: Witness, comm: Comm) -> Any:
        x = w.rows(comm, rows).repeat(wider, 1).astype(dtype)
        x = w.place(comm, x.reshape(shape) if shape else x)
        every = None if sizes is None else [sizes] * w.size
        return comm.all_gatherv(x if count is None else [x] * count, every, **words)

    return call


def exchange(**words: Any) -> Call:
    """all_gatherv whose sizes the ranks tell each other."""
    return gather(sizes=None, **words)


def scatter(*, rows: int = 6, shape: tuple[int, ...] = (), **words: Any) -> Call:
    """reduce_scatterv of x [rows, columns]."""
    dtype = words.pop("dtype", np.float32)

    def call(w: Witness, comm: Comm) -> Any:
        x = w.rows(comm, rows, dtype)
        return comm.reduce_scatterv(w.place(comm, x.reshape(shape) if shape else x), **words)

    return call


def numbers(w: Witness, values: list[int]) -> Any:
    """Counts or displacements of this many ranks, as large as the scene's rows."""
    return np.array(values[: w.size]) * (w.columns // 2)


def atb_gather(counts: list[int], displs: list[int], **fields: Any) -> Call:
    """AllGatherV of up to 3 ranks by its struct."""

    def call(w: Witness, comm: Comm) -> Any:
        param = collops.AllGatherVParam(hccl_comm=comm, backend="shm", **fields)
        every = numbers(w, counts)
        x, y = w.rows(comm, 6), np.empty(6, np.float16)
        own = every[w.rank : w.rank + 1]
        return collops.Operation(param).forward([x, own, every, numbers(w, displs), y])

    return call


def even(name: str, shape: tuple[int, ...] = (6, 2), dtype: Any = np.float32, **words: Any) -> Call:
    """One of the even collectives of the plain level."""
    return lambda w, comm: getattr(comm, name)(w.place(comm, np.ones(shape, dtype)), **words)


def barrier(w: Witness, comm: Comm) -> None:
    comm.barrier()


def split(w: Witness, comm: Comm) -> Any:
    return comm.split(0)


COUNTS, DISPLS = [2, 4, 6], [0, 2, 6]

# The call of the odd rank, and the call of the others.
CASES: dict[str, tuple[Call, Call]] = {
    "operator": (scatter(), gather()),
    "operator: Barrier": (barrier, scatter()),
    "dtype of all_gatherv": (gather(dtype="i4"), gather()),
    "reduceType": (scatter(op="max"), scatter()),
    "counts[i] of all_gatherv": (gather(sizes=6), gather(rows=5, sizes=5)),
    "displs[i] of AllGatherV": (atb_gather(COUNTS, [0, 3, 7]), atb_gather(COUNTS, [0, 2, 7])),
    "sizes exchanged: dtype": (exchange(dtype="i2"), exchange()),
}


def disagree(w: Witness) -> None:
    """All cases, one domain each; after one of them also a call that is not wrong."""
    w.windows = True
    for case, (odd, others) in CASES.items():
        comm = w.join(case)
        w.hears(case, lambda c=comm, call=odd if w.last else others: call(w, c))
        if case in ("operator", "sizes exchanged: dtype"):
            w.hears(f"{case}, then barrier", comm.barrier)
            w.hears(f"{case}, then all_gatherv", lambda c=comm: c.all_gatherv(np.ones(2)))


SCENES = [Scene("3 ranks that disagree, windows", 3, disagree, racing=True)]
