"""Ranks that disagree: ERROR_RANK_MISMATCH on all, naming ranks, field and both values.

The communicator refuses calls from then on, and a new one can be made in the same processes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Call = Callable[[collops.Communicator, str], Any]


def gather(x: Any, sizes: Any) -> Call:
    return lambda comm, domain: comm.all_gatherv(x, sizes)


def scatter(x: Any, sizes: Any = None, op: str = "sum") -> Call:
    return lambda comm, domain: comm.reduce_scatterv(x, sizes, op=op)


def gather_of(*args: Any, **kwargs: Any) -> Call:
    return lambda comm, domain: comm.all_gatherv(*args, **kwargs)


def atb_gather(counts: list[int], displs: list[int], root: int = 0) -> Call:
    def run(comm: collops.Communicator, domain: str) -> Any:
        op = collops.Operation(
            collops.AllGatherVParam(hccl_comm=comm, rank_root=root, backend="shm")
        )
        every = np.array(counts)
        own = every[comm.rank : comm.rank + 1]
        return op.forward([X, own, every, np.array(displs), np.empty(6, np.float16)])

    return run


def atb_scatter(counts: list[int], displs: list[int], reduce_type: str = "sum") -> Call:
    def run(comm: collops.Communicator, domain: str) -> Any:
        param = collops.ReduceScatterVParam(
            rank=comm.rank, hccl_comm=comm, reduce_type=reduce_type, backend="shm"
        )
        every = np.array(counts)
        own = every[comm.rank : comm.rank + 1]
        ins = [X, every, np.array(displs), own, np.empty(6, np.float16)]
        return collops.Operation(param).forward(ins)

    return run


# What rank 2 calls, what the others call, and what the message names besides the ranks.
CASES: dict[str, tuple[Call, Call, list[str]]] = {
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
        ["x's shape", "[-1, 4]", "[-1, 2]"],
    ),
    "dims of gather": (
        gather(X.astype("S3").reshape(3, 4)[:, None], [3, 3, 3]),
        gather(X[:3].astype("S3"), [3, 3, 3]),
        ["x's shape", "[-1, 4]", "[-1, 2]"],
    ),
    "shape of gather of dim 1": (
        gather_of(X[:2], [2, 2, 2], dim=1),
        gather_of(X, [2, 2, 2], dim=1),
        ["x's shape", "[2, -1]", "[6, -1]"],
    ),
    "operator": (
        scatter(X),
        gather(X, [6, 6, 6]),
        ["the call", "reduce_scatterv", "all_gatherv"],
    ),
    "barrier": (lambda comm, domain: comm.barrier(), scatter(X), ["barrier", "reduce_scatterv"]),
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
        lambda comm, domain: comm.reduce_scatterv(X[:2], [1, 1, 0], dim=1),
        lambda comm, domain: comm.reduce_scatterv(X[:2], [1, 1, 0]),
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
        lambda comm, domain: comm.split(0),
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


def outcome(run: Callable[[], Any]) -> tuple[int, str]:
    try:
        run()
    except collops.Error as error:
        return error.code, error.message
    return 0, ""


def all_cases(rank: int) -> dict[str, Any]:
    """Per case: the disagreement, a later call, and a call of a new communicator."""
    results = {}
    for case, (odd, even, _) in CASES.items():
        comm = collops.init(comm_domain=case, timeout_s=20)
        first = outcome(partial(odd if rank == 2 else even, comm, case))
        later = outcome(comm.barrier)
        again = collops.init(comm_domain=case, timeout_s=20)
        results[case] = first, later, again.all_gatherv(np.array([rank])).tolist()
    return results


@pytest.fixture(scope="module", params=[False, True], ids=["processes", "threads"])
def results(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return run_ranks(all_cases, 3, threads=request.param)


@pytest.mark.parametrize("case", CASES)
def test_all_ranks_are_told_who_differs_in_what(results: list[Any], case: str) -> None:
    for rank in range(3):
        code, message = results[rank][case][0]
        assert code == 102, message
        assert "disagree" in message
        assert "2" in message
        for word in CASES[case][2]:
            assert word in message, message


@pytest.mark.parametrize("case", CASES)
def test_the_communicator_refuses_later_calls(results: list[Any], case: str) -> None:
    for rank in range(3):
        code, message = results[rank][case][1]
        assert code != 0
        assert "ended" in message or "closed" in message


@pytest.mark.parametrize("case", CASES)
def test_a_new_one_can_be_made(results: list[Any], case: str) -> None:
    assert [results[rank][case][2] for rank in range(3)] == [[0, 1, 2]] * 3


def test_gathered_shapes_may_differ_where_sizes_are_given() -> None:
    def work(rank: int) -> list[float]:
        comm = collops.init()
        x = X[:2] if rank == 0 else X[:2].reshape(2, 2, 1)
        return list(comm.all_gatherv(x, [2, 2]).ravel())

    assert run_ranks(work, 2) == [[0.0, 1.0, 2.0, 3.0] * 2] * 2
