"""Scenes in which the rank of the highest number calls something else than the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scene import Scene
from witness import Witness

import collops

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


def exchange_pair(second: Any) -> Call:
    """all_gatherv without sizes of two tensors."""
    return lambda w, comm: comm.all_gatherv([np.zeros((6, 2), "f4"), second])


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


def atb_scatter(counts: list[int], displs: list[int], **fields: Any) -> Call:
    """ReduceScatterV of up to 3 ranks by its struct."""

    def call(w: Witness, comm: Comm) -> Any:
        fields["rank"] = w.rank
        param = collops.ReduceScatterVParam(hccl_comm=comm, backend="shm", **fields)
        every = numbers(w, counts)
        x, y = w.rows(comm, 6), np.empty(6, np.float16)
        own = every[w.rank : w.rank + 1]
        return collops.Operation(param).forward([x, every, numbers(w, displs), own, y])

    return call


def even(name: str, shape: tuple[int, ...] = (6, 2), dtype: Any = np.float32, **words: Any) -> Call:
    """One of the even collectives of the plain level."""
    return lambda w, comm: getattr(comm, name)(w.place(comm, np.ones(shape, dtype)), **words)


def barrier(w: Witness, comm: Comm) -> None:
    comm.barrier()


def split(w: Witness, comm: Comm) -> Any:
    return comm.split(0)


COUNTS, DISPLS = [2, 4, 6], [0, 2, 6]
FIELDS_A = np.dtype([("a_field_of", "i4"), ("another", "f4")])
FIELDS_B = np.dtype([("a_field_of", "f4"), ("another", "i4")])
FLAT = (2, 3, *(1,) * 10)

# The call of the odd rank, and the call of the others.
CASES: dict[str, tuple[Call, Call]] = {
    "operator": (scatter(), gather()),
    "operator: Barrier": (barrier, scatter()),
    "operator: Split": (split, gather()),
    "operator: no sizes": (exchange(), gather()),
    "operator: AllReduce": (even("all_reduce"), even("broadcast")),
    "operator: AllGather": (even("all_gather"), gather()),
    "operator: ReduceScatter": (even("reduce_scatter"), scatter()),
    "dtype of all_gatherv": (gather(dtype="i4"), gather()),
    "dtype of reduce_scatterv": (scatter(dtype="f8"), scatter()),
    "dtype of all_reduce": (even("all_reduce", dtype="i4"), even("all_reduce")),
    "dtype of broadcast": (even("broadcast", dtype="i4"), even("broadcast")),
    "dtype without a name": (gather(dtype="S3"), gather(dtype="V3")),
    "dtype without a name, and one with": (gather(dtype="S1"), gather(dtype="u1")),
    "dtype of structures": (gather(dtype=FIELDS_A), gather(dtype=FIELDS_B)),
    "reduceType": (scatter(op="max"), scatter()),
    "reduceType of the struct": (
        atb_scatter(COUNTS, DISPLS, reduce_type="min"),
        atb_scatter(COUNTS, DISPLS, reduce_type="max"),
    ),
    "reduceType of all_reduce": (even("all_reduce", op="prod"), even("all_reduce")),
    "rankRoot of AllGatherV": (
        atb_gather(COUNTS, DISPLS, rank_root=1),
        atb_gather(COUNTS, DISPLS),
    ),
    "rankRoot of ReduceScatterV": (
        atb_scatter(COUNTS, DISPLS, rank_root=1),
        atb_scatter(COUNTS, DISPLS),
    ),
    "root of broadcast": (even("broadcast", root=1), even("broadcast")),
    "number of tensors": (gather(tensors=2), gather(tensors=3)),
    "dim of all_gatherv": (gather(dim=1, sizes=2, shape=(-1, 2)), gather(sizes=6)),
    "dim of reduce_scatterv": (
        scatter(rows=4, dim=1, shape=(4, 2, -1)),
        scatter(rows=4, shape=(4, 2, -1)),
    ),
    "x's shape of all_gatherv": (gather(wider=2), gather()),
    "x's shape of all_gatherv of dim 1": (
        gather(rows=2, shape=(2, -1, 2), sizes=2, dim=2),
        gather(shape=(6, -1, 2), sizes=2, dim=2),
    ),
    "x's shape of reduce_scatterv": (scatter(shape=(6, 1, -1)), scatter()),
    "x's shape of all_reduce": (even("all_reduce", (2, 6)), even("all_reduce")),
    "x's shape of broadcast": (even("broadcast", (3, 4)), even("broadcast")),
    "x's shape of all_gather": (even("all_gather", (3, 4)), even("all_gather")),
    "x's shape of reduce_scatter": (
        even("reduce_scatter", (12, 1)),
        even("reduce_scatter", (12, 2)),
    ),
    "counts[i] of all_gatherv": (gather(sizes=6), gather(rows=5, sizes=5)),
    "counts[i] of AllGatherV": (atb_gather([2, 3, 6], DISPLS), atb_gather(COUNTS, DISPLS)),
    "displs[i] of AllGatherV": (atb_gather(COUNTS, [0, 3, 7]), atb_gather(COUNTS, [0, 2, 7])),
    "counts[i] of ReduceScatterV": (atb_scatter([2, 3, 6], DISPLS), atb_scatter(COUNTS, DISPLS)),
    "displs[i] of ReduceScatterV": (atb_scatter(COUNTS, [0, 1, 6]), atb_scatter(COUNTS, DISPLS)),
    "sizes exchanged: dtype": (exchange(dtype="i2"), exchange()),
    "sizes exchanged: dtype without a name": (exchange(dtype="S3"), exchange(dtype="S4")),
    "sizes exchanged: shape": (exchange(shape=(-1, 3)), exchange()),
    "sizes exchanged: number of dims": (exchange(shape=(6, -1, 1)), exchange()),
    "sizes exchanged: more than 11 dims": (
        lambda w, comm: comm.all_gatherv(np.zeros((*FLAT, 1))),
        lambda w, comm: comm.all_gatherv(np.zeros((*FLAT, 2))),
    ),
    "sizes exchanged: dim": (exchange(dim=1), exchange()),
    "sizes exchanged: shape of dim 1": (exchange(dim=1), exchange(rows=5, dim=1)),
    "sizes exchanged: number of tensors": (exchange(tensors=2), exchange()),
    "sizes exchanged: dtype in a list": (
        exchange_pair(np.zeros((6, 2), "i4")),
        exchange_pair(np.zeros((6, 2), "f4")),
    ),
    "sizes exchanged: shape in a list": (
        exchange_pair(np.zeros((6, 1), "f4")),
        exchange_pair(np.zeros((6, 2), "f4")),
    ),
}


def disagree(windows: bool) -> Callable[[Witness], None]:
    """All cases, one domain each; after one of them also a call that is not wrong."""

    def play(w: Witness) -> None:
        w.windows = windows
        for case, (odd, others) in CASES.items():
            comm = w.join(case)
            w.hears(case, lambda c=comm, call=odd if w.last else others: call(w, c))
            if case in ("operator", "sizes exchanged: dtype"):
                w.hears(f"{case}, then barrier", comm.barrier)
                w.hears(f"{case}, then all_gatherv", lambda c=comm: c.all_gatherv(np.ones(2)))

    return play


SCENES = [
    Scene(
        f"{ranks} ranks that disagree, {memory}", ranks, disagree(memory == "windows"), racing=True
    )
    for ranks in (2, 3)
    for memory in ("plain memory", "windows")
]
