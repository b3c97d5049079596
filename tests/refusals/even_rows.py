"""all_gather, reduce_scatter, all_reduce, broadcast and AllToAll at both levels: wrong calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from disagreement_rows import Call, OfStruct, Rows

import collops

Comm = collops.Communicator
X = np.arange(12, dtype=np.float32).reshape(6, 2)


def plain(method: str, *args: Any, **kwargs: Any) -> Call:
    """A call of the plain level on copies of its arrays."""

    def run(comm: Comm) -> Any:
        own = [
            arg.copy() if isinstance(arg, np.ndarray) and arg.flags.c_contiguous else arg
            for arg in args
        ]
        return getattr(comm, method)(*own, **kwargs)

    return run


def operation(comm: Comm, name: str, **fields: Any) -> collops.Operation:
    struct = getattr(collops, f"{name}Param")
    return collops.Operation(struct(rank=comm.rank, hccl_comm=comm, backend="shm", **fields))


def atb(name: str, x: Any = X, **fields: Any) -> OfStruct:
    """A call of the ATB level."""
    return OfStruct(lambda comm: (operation(comm, name, **fields), [x.copy()]))


def forward(name: str, x: Any) -> Call:
    return lambda comm: operation(comm, name).forward([x])


def replanned(name: str, change: Callable[[Any], Any] = lambda x: x) -> Call:
    """A planned call of the ATB level whose x is changed between the two phases."""

    def run(comm: Comm) -> Any:
        op, ins = operation(comm, name), [X.copy()]
        outs = [np.empty(desc.shape, desc.dtype) for desc in op.infer_shape(ins)]
        op.get_workspace_size(ins, outs)
        op.execute([change(ins[0])], outs)

    return run


def read_only() -> Any:
    array = X.copy()
    array.flags.writeable = False
    return array


def shifted(comm: Comm) -> Any:
    memory = np.zeros(20, np.float32)
    return comm.all_reduce(memory[:12], out=memory[4:16])


GATHER, SCATTER = plain("all_gather", X), plain("reduce_scatter", X)
REDUCE, BROADCAST = plain("all_reduce", X), plain("broadcast", X)
STRIDED = X.repeat(2, 1)[:, ::2]
# The fault of rank 1, what the others call, the fault's code, and a part of its message.
EVEN_FAULTS: dict[str, tuple[Call, Call, int, str]] = {
    "gather: a number": (plain("all_gather", 3), GATHER, 1, "all_gather: x must be a numpy array"),
    "gather: 0 dims": (plain("all_gather", np.array(3.0)), GATHER, 16, "x has 0 dims"),
    "gather: strided": (plain("all_gather", STRIDED), GATHER, 14, "all_gather: x is not contiguo"),
    "gather: out": (plain("all_gather", X, out=X.copy()), GATHER, 8, "out must have shape [18, 2]"),
    "gather: out dtype": (
        plain("all_gather", X, out=np.empty((18, 2))),
        GATHER,
        13,
        "all_gather: out must be float32 as x, got float64",
    ),
    "gather: references": (plain("all_gather", X.astype("O")), GATHER, 13, "are references"),
    "scatter: op": (
        plain("reduce_scatter", X, "mul"),
        SCATTER,
        1,
        "got 'mul'; did you mean \"prod\"?",
    ),
    "scatter: rows": (plain("reduce_scatter", X[:4]), SCATTER, 8, "pad x to 6 rows, or use reduce"),
    "scatter: 0 dims": (plain("reduce_scatter", np.array(3.0)), SCATTER, 16, "x has 0 dims"),
    "scatter: bool": (
        plain("reduce_scatter", X.astype("?")),
        SCATTER,
        13,
        "reduce_scatter: there is no sum of bool",
    ),
    "scatter: text": (plain("reduce_scatter", X.astype("S3")), SCATTER, 13, "cannot be reduced"),
    "scatter: read-only": (
        plain("reduce_scatter", X, out=read_only()[:2]),
        SCATTER,
        14,
        "reduce_scatter: out is read-only",
    ),
    "reduce: op": (plain("all_reduce", X, None), REDUCE, 1, 'all_reduce: op must be "sum"'),
    "reduce: avg": (plain("all_reduce", X.astype("?"), "avg"), REDUCE, 13, "no avg of bool"),
    "reduce: bits": (plain("all_reduce", X, "bxor"), REDUCE, 13, "no bxor of float32"),
    "reduce: out": (plain("all_reduce", X, out=X[:5].copy()), REDUCE, 8, "out must have shape"),
    "reduce: strided": (plain("all_reduce", STRIDED), REDUCE, 14, "all_reduce: x is not contiguo"),
    "reduce: shifted": (shifted, REDUCE, 14, "or pass x itself as out"),
    "broadcast: root": (plain("broadcast", X, 3), BROADCAST, 1, "root must be in [0, 3), got 3"),
    "broadcast: low root": (plain("broadcast", X, -1), BROADCAST, 1, "root must be in [0, 3)"),
    "broadcast: no root": (plain("broadcast", X, 1.5), BROADCAST, 1, "must be a whole number"),
    "broadcast: read-only": (
        lambda comm: comm.broadcast(read_only()),
        BROADCAST,
        14,
        "broadcast: x is read-only",
    ),
    "broadcast: strided": (plain("broadcast", STRIDED), BROADCAST, 14, "x is not contiguous"),
    "broadcast: a list": (plain("broadcast", [1.0]), BROADCAST, 1, "x must be a numpy array"),
    **{
        f"{name}: other shape": (
            replanned(name, lambda x: x.reshape(4, 3)),
            replanned(name),
            1,
            f"{name}: no plan has the shapes",
        )
        for name in ("AllGather", "ReduceScatter", "AllReduce", "Broadcast", "AllToAll")
    },
    **{
        f"{name}: forward": (
            forward(name, X.astype("u4")),
            replanned(name),
            13,
            f"{name}: x is uint32",
        )
        for name in ("AllGather", "ReduceScatter", "AllReduce", "Broadcast", "AllToAll")
    },
}

# What rank 2 calls, what the others call, and what the message names besides the ranks.
EVEN_DISAGREEMENTS: Rows = {
    "reduce or scatter": (REDUCE, SCATTER, ["the call", "all_reduce", "reduce_scatter "]),
    "reduce or scatter V": (
        REDUCE,
        plain("reduce_scatterv", X),
        ["the call", "all_reduce", "reduce_scatterv"],
    ),
    "scatter or scatter V": (
        SCATTER,
        plain("reduce_scatterv", X, [2, 2, 2]),
        ["the call", "reduce_scatter ", "reduce_scatterv"],
    ),
    "gather or gather V": (
        GATHER,
        plain("all_gatherv", X, [6, 6, 6]),
        ["the call", "all_gather ", "all_gatherv"],
    ),
    "broadcast or gather": (BROADCAST, GATHER, ["the call", "broadcast", "all_gather "]),
    "transpose": (
        atb("AllToAll", X.reshape(2, 6), transpose=True),
        atb("AllToAll", X.reshape(2, 6)),
        ["transpose", "0", "1"],
    ),
    "shape of all-to-all": (
        atb("AllToAll", X.reshape(3, 4)),
        atb("AllToAll"),
        ["x's shape", "[3, 4]", "[6, 2]"],
    ),
    "all-to-all or gather": (
        atb("AllToAll"),
        GATHER,
        ["operator", "AllToAll ", "AllGather "],
    ),
    "shape of gather": (plain("all_gather", X[:5]), GATHER, ["x's shape", "[5, 2]", "[6, 2]"]),
    "shape of reduce": (
        plain("all_reduce", X.reshape(2, 6)),
        REDUCE,
        ["x's shape", "[2, 6]", "[6, 2]"],
    ),
    "shape of scatter": (
        plain("reduce_scatter", X[:3]),
        SCATTER,
        ["x's shape", "[3, 2]", "[6, 2]"],
    ),
    "shape of broadcast": (plain("broadcast", X[:1]), BROADCAST, ["x's shape", "[1, 2]", "[6, 2]"]),
    "dtype of gather": (
        plain("all_gather", X.astype("i4")),
        GATHER,
        ["dtype", "int32", "float32"],
    ),
    "dtype of broadcast": (
        plain("broadcast", X.astype("S4")),
        BROADCAST,
        ["dtype", "|S4", "float32"],
    ),
    "op of reduce": (plain("all_reduce", X, "max"), REDUCE, ["op is", "max", "sum"]),
    "op of scatter": (plain("reduce_scatter", X, "avg"), SCATTER, ["op is", "avg", "sum"]),
    "root": (plain("broadcast", X, 1), BROADCAST, ["root is", "1", "0"]),
    "ATB's root": (atb("Broadcast", rank_root=2), atb("Broadcast"), ["rankRoot", "2", "0"]),
    "root of a gather": (atb("AllGather", rank_root=1), atb("AllGather"), ["rankRoot", "1", "0"]),
    "ATB's op": (
        atb("AllReduce", all_reduce_type="prod"),
        atb("AllReduce", all_reduce_type="min"),
        ["reduceType", "prod", "min"],
    ),
    "levels differ": (atb("ReduceScatter"), plain("all_reduce", X), ["AllReduce", "ReduceScatter"]),
}
