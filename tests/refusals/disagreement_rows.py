"""Calls in which one rank differs from the others, and the message that all ranks get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from right_calls import LINEAR, RIGHT

import collops
from collops import TwoDimTPInfo

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Comm = collops.Communicator
Call = Callable[[Comm], Any]


class OfStruct:
    """A call of an operation, which stays the same for later calls."""

    def __init__(self, make: Callable[[Comm], tuple[collops.Operation, list[Any]]]) -> None:
        self._make = make

    def prepared(self, comm: Comm) -> Callable[[], Any]:
        operation, ins = self._make(comm)
        return lambda: operation.forward(ins)


# What the odd rank calls, what the others call, and what the message names besides the ranks.
Rows = dict[str, tuple[Call | OfStruct, Call | OfStruct, list[str]]]


def gather(x: Any, sizes: Any) -> Call:
    return lambda comm: comm.all_gatherv(x, sizes)


def scatter(x: Any, sizes: Any = None, op: str = "sum") -> Call:
    return lambda comm: comm.reduce_scatterv(x, sizes, op=op)


def gather_of(*args: Any, **kwargs: Any) -> Call:
    return lambda comm: comm.all_gatherv(*args, **kwargs)


def atb_gather(counts: list[int], displs: list[int], root: int = 0) -> OfStruct:
    def make(comm: Comm) -> tuple[collops.Operation, list[Any]]:
        op = collops.Operation(
            collops.AllGatherVParam(hccl_comm=comm, rank_root=root, backend="shm")
        )
        every = np.array(counts)
        own = every[comm.rank : comm.rank + 1]
        return op, [X, own, every, np.array(displs), np.empty(6, np.float16)]

    return OfStruct(make)


def atb_scatter(counts: list[int], displs: list[int], reduce_type: str = "sum") -> OfStruct:
    def make(comm: Comm) -> tuple[collops.Operation, list[Any]]:
        param = collops.ReduceScatterVParam(
            rank=comm.rank, hccl_comm=comm, reduce_type=reduce_type, backend="shm"
        )
        every = np.array(counts)
        own = every[comm.rank : comm.rank + 1]
        ins = [X, every, np.array(displs), own, np.empty(6, np.float16)]
        return collops.Operation(param), ins

    return OfStruct(make)


# On three ranks.
PLAIN: Rows = {
    "op": (scatter(X, op="max"), scatter(X), ["max", "sum"]),
    "dtype of scatter": (scatter(X.astype("f8")), scatter(X), ["dtype", "float64", "float32"]),
    "dtype of gather": (
        gather(X.astype("i4"), [6, 6, 6]),
        gather(X, [6, 6, 6]),
        ["dtype", "int32", "float32"],
    ),
    "x's shape": (scatter(X.reshape(6, 1, 2)), scatter(X), ["shape", "[6, 1, 2]", "[6, 2]"]),
    "sizes of scatter": (scatter(X, [2, 3, 1]), scatter(X, [3, 2, 1]), ["sizes[0]", "2", "3"]),
    "sizes of gather": (
        gather(X, [6, 7, 6]),
        gather(X, [6, 6, 6]),
        ["sizes[1]", "7", "6"],
    ),
    "shape of gather": (
        gather(X.repeat(2, 1), [6, 6, 6]),
        gather(X, [6, 6, 6]),
        ["x's shape", "[*, 4]", "[*, 2]"],
    ),
    "dims of gather": (
        gather(X.astype("S3").reshape(3, 4)[:, None], [3, 3, 3]),
        gather(X[:3].astype("S3"), [3, 3, 3]),
        ["x's shape", "[*, 4]", "[*, 2]"],
    ),
    "shape of gather of dim 1": (
        gather_of(X[:2], [2, 2, 2], dim=1),
        gather_of(X, [2, 2, 2], dim=1),
        ["x's shape", "[2, *]", "[6, *]"],
    ),
    "operator": (
        scatter(X),
        gather(X, [6, 6, 6]),
        ["the call", "reduce_scatterv", "all_gatherv"],
    ),
    "barrier": (lambda comm: comm.barrier(), scatter(X), ["barrier", "reduce_scatterv"]),
    "no sizes": (gather(X, None), gather(X, [6, 6, 6]), ["all_gatherv", "without sizes"]),
    "exchanged dtype": (
        gather(X.astype("i2"), None),
        gather(X, None),
        ["dtype", "int16", "float32"],
    ),
    "exchanged shape": (
        gather(X.reshape(4, 3), None),
        gather(X, None),
        ["shape after dim 0", "[3]", "[2]"],
    ),
    "exchanged dims": (
        gather(X.reshape(6, 2, 1), None),
        gather(X, None),
        ["shape after dim 0", "[2, 1]", "[2]"],
    ),
    "exchanged unnamed types": (
        gather(X.astype("S3"), None),
        gather(X.astype("S4"), None),
        ["dtype", "|S3", "|S4"],
    ),
    "dim of gather": (
        gather_of(X[:2], [2, 2, 2], dim=1),
        gather_of(X[:2], [2, 2, 2]),
        ["dim is", "0", "1"],
    ),
    "dim of scatter": (
        lambda comm: comm.reduce_scatterv(X[:2], [1, 1, 0], dim=1),
        lambda comm: comm.reduce_scatterv(X[:2], [1, 1, 0]),
        ["dim is", "0", "1"],
    ),
    "exchanged dim": (
        gather_of(X, dim=1),
        gather_of(X),
        ["dim is", "0", "1"],
    ),
    "exchanged shape of dim 1": (
        gather_of(X, dim=1),
        gather_of(X[:5], dim=1),
        ["shape without dim 1", "[6]", "[5]"],
    ),
    "length of lists": (
        gather_of([X, X], [6, 6, 6]),
        gather_of([X, X, X], [6, 6, 6]),
        ["number of tensors", "3", "2"],
    ),
    "length of exchanged lists": (
        gather_of([X, X]),
        gather_of(X),
        ["number of tensors", "1", "2"],
    ),
    "dtype in a list": (
        gather_of([X, X.astype("i4")], [6, 6, 6]),
        gather_of([X, X], [6, 6, 6]),
        ["dtype", "int32", "float32"],
    ),
    "exchanged dtype in a list": (
        gather_of([X, X.astype("i4")]),
        gather_of([X, X]),
        ["x[1]'s dtype", "int32", "float32"],
    ),
    "exchanged shape in a list": (
        gather_of([X, X[:, :1]]),
        gather_of([X, X]),
        ["x[1]'s shape after dim 0", "[1]", "[2]"],
    ),
    "unnamed types of one size": (
        gather_of(X.astype("S3"), [6, 6, 6]),
        gather_of(X.astype("V3"), [6, 6, 6]),
        ["dtype", "|S3", "|V3"],
    ),
    "bytes and an unnamed type": (
        gather_of(X.astype("S1"), [6, 6, 6]),
        gather_of(X.astype("u1"), [6, 6, 6]),
        ["dtype", "|S1", "uint8"],
    ),
    "structures with other fields": (
        gather_of(np.zeros(2, [("a_field_of", "i4"), ("another", "f4")]), [2, 2, 2]),
        gather_of(np.zeros(2, [("a_field_of", "f4"), ("another", "i4")]), [2, 2, 2]),
        ["dtype", "[('a_field_o.. "],
    ),
    "split": (
        lambda comm: comm.split(0),
        scatter(X),
        ["the call", "split", "reduce_scatterv"],
    ),
    "rankRoot": (
        atb_gather([2, 4, 6], [0, 2, 6], 1),
        atb_gather([2, 4, 6], [0, 2, 6]),
        ["rankRoot", "1", "0"],
    ),
    "recvCounts": (
        atb_gather([2, 3, 6], [0, 2, 6]),
        atb_gather([2, 4, 6], [0, 2, 6]),
        ["recvCounts[1]", "3", "4"],
    ),
    "rdispls": (
        atb_gather([2, 4, 5], [0, 2, 7]),
        atb_gather([2, 4, 5], [0, 2, 6]),
        ["rdispls[2]", "7", "6"],
    ),
    "sendCounts": (
        atb_scatter([2, 3, 6], [0, 2, 6]),
        atb_scatter([2, 4, 6], [0, 2, 6]),
        ["sendCounts[1]", "3", "4"],
    ),
    "sdispls": (
        atb_scatter([2, 4, 6], [0, 1, 6]),
        atb_scatter([2, 4, 6], [0, 2, 6]),
        ["sdispls[1]", "1", "2"],
    ),
    "reduceType": (
        atb_scatter([2, 4, 6], [0, 2, 6], "min"),
        atb_scatter([2, 4, 6], [0, 2, 6], "max"),
        ["reduceType", "min", "max"],
    ),
}


def exchange(
    changes: dict[str, list[int]] | None = None,
    *,
    v2: bool = False,
    dtype: str = "float32",
    root: int = 0,
) -> OfStruct:
    """Every rank sends rank q q + 1 elements; `changes` replace lists of this rank."""

    def make(comm: Comm) -> tuple[collops.Operation, list[Any]]:
        size, own = comm.size, comm.rank + 1
        lists = {
            "send_counts": [q + 1 for q in range(size)],
            "sdispls": [0] * size,
            "recv_counts": [own] * size,
            "rdispls": [q * own for q in range(size)],
            **(changes or {}),
        }
        fields: dict[str, Any] = {"rank": comm.rank, "hccl_comm": comm, "backend": "shm"}
        x = (np.arange(size) + 10 * comm.rank).astype(dtype)
        if not v2:
            param = collops.AllToAllVParam(rank_root=root, **fields, **lists)
            return collops.Operation(param), [x]
        op = collops.Operation(collops.AllToAllVV2Param(rank_root=root, **fields))
        numbers = [np.array(list_) for list_ in lists.values()]
        return op, [x, *numbers, np.empty(sum(lists["recv_counts"]), np.int8)]

    return OfStruct(make)


EXCHANGES: Rows = {
    "sent": (
        exchange({"send_counts": [1, 1, 3]}),
        exchange(),
        ["sendCounts[1] is 1 on rank 2", "recvCounts[2] is 2 on rank 1"],
    ),
    "received": (
        exchange({"recv_counts": [3, 1, 3], "rdispls": [0, 3, 4]}),
        exchange(),
        ["sendCounts[2] is 3 on rank 1", "recvCounts[1] is 1 on rank 2"],
    ),
    "itself": (
        exchange({"recv_counts": [3, 3, 2]}),
        exchange(),
        ["sendCounts[2] is 3 on rank 2", "recvCounts[2] is 2 on rank 2"],
    ),
    "dtype of exchange": (exchange(dtype="float64"), exchange(), ["dtype", "float32", "float64"]),
    "root of exchange": (exchange(root=1), exchange(), ["rankRoot", "0", "1"]),
    "operator of exchange": (
        exchange(v2=True),
        exchange(),
        ["the operator is AllToAllV on", "AllToAllVV2 on"],
    ),
}


def linear(ins: Any = None, **fields: Any) -> OfStruct:
    """LinearParallel of right inputs, or of others."""

    def make(comm: Comm) -> tuple[collops.Operation, list[Any]]:
        own = {**LINEAR, "rank": comm.rank, "hccl_comm": comm, "backend": "shm", **fields}
        x, weight, residual = RIGHT["LinearParallel"].inputs()
        given = [x + 100 * comm.rank, weight - comm.rank, residual] if ins is None else ins
        return collops.Operation(collops.LinearParallelParam(**own)), given

    return OfStruct(make)


def wider(k: int, n: int, rows: int = 3, dtype: Any = np.float32) -> list[Any]:
    return [np.zeros((rows, k), dtype), np.zeros((n, k), dtype), np.zeros(n, dtype)]


def grid(ag_dim: int, rs_dim: int, inner_dim_is_ag: int = 1) -> dict[str, Any]:
    info = TwoDimTPInfo(ag_dim=ag_dim, rs_dim=rs_dim, inner_dim_is_ag=inner_dim_is_ag)
    return {"two_dim_tp_info": info}


HALVES = wider(4, 5, dtype=np.float16)
# Two ranks, which both gather; rank 1 is the odd one.
LINEAR_PAIR: Rows = {
    "type 0": (linear(type=0), linear(), ["type is", "4", "0"]),
    "type 2": (linear(type=2), linear(), ["type is", "4", "2"]),
    "agDim": (linear(wider(4, 5, 6), **grid(1, 2)), linear(), ["agDim is"]),
    "innerDimIsAg": (linear(**grid(2, 1, 0)), linear(), ["innerDimIsAg is"]),
    "rankRoot": (linear(rank_root=1), linear(), ["rankRoot is"]),
    "k": (linear(wider(7, 5)), linear(), ["k is", "7", "4"]),
    "n": (linear(wider(4, 6)), linear(), ["n is", "6", "5"]),
    "dtype": (linear(HALVES), linear(), ["dtype is", "float16", "float32"]),
    "rows": (
        linear(wider(4, 5, 4), gather_rows=[3, 4]),
        linear(),
        ["gatherRows[1] is", "4", "3"],
    ),
    "gatherRows": (
        linear(wider(4, 5, 4), gather_rows=[2, 4]),
        linear(gather_rows=[3, 3]),
        ["gatherRows[0] is", "2", "3"],
    ),
}


def of_four(ins: Any = None, **fields: Any) -> OfStruct:
    return linear(ins, **{**grid(2, 2), **fields})


# Four ranks, two by two: those outside the odd one's group hear of it too. Rank 1 is the odd one.
LINEAR_SQUARE: Rows = {
    "type": (of_four(type=2), of_four(), ["type is", "4", "2"]),
    "agDim": (of_four(**grid(4, 1)), of_four(), ["agDim is", "4", "2"]),
    "innerDimIsAg": (of_four(**grid(2, 2, 0)), of_four(), ["innerDimIsAg is"]),
    "k": (of_four(wider(7, 5)), of_four(), ["k is", "7", "4"]),
    "n": (of_four(wider(4, 6)), of_four(), ["n is", "6", "5"]),
    "dtype": (of_four(HALVES), of_four(), ["dtype is", "float16", "float32"]),
    "rows": (of_four(gather_rows=[5, 3]), of_four(), ["gatherRows[0] is", "5", "3"]),
    # Only rank 0 has the list of the one, and only rank 3 that of the other.
    "gatherRows": (
        of_four(wider(4, 5, 4), gather_rows=[2, 4]),
        of_four(),
        ["gatherRows[0] is", "2", "3"],
    ),
    "scatterRows": (of_four(scatter_rows=[1, 5]), of_four(), ["scatterRows[0] is", "1", "3"]),
}
