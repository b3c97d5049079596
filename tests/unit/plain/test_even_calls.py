"""Calls of the even collectives that go wrong: refused by one rank, or different on every rank."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

Comm = collops.Communicator
Call = Callable[[Comm], Any]
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


def atb(name: str, x: Any = X, change: Callable[[Any], Any] = lambda x: x, **fields: Any) -> Call:
    """A planned call of the ATB level whose x is changed between the two phases."""

    def run(comm: Comm) -> Any:
        struct = getattr(collops, f"{name}Param")
        op = collops.Operation(struct(rank=comm.rank, hccl_comm=comm, backend="shm", **fields))
        ins = [x.copy()]
        outs = [np.empty(desc.shape, desc.dtype) for desc in op.infer_shape(ins)]
        op.get_workspace_size(ins, outs)
        op.execute([change(ins[0])], outs)

    return run


def outcome(run: Callable[[], Any]) -> tuple[int, str]:
    try:
        run()
    except collops.Error as error:
        return error.code, error.message
    return 0, ""


def read_only() -> Any:
    array = X.copy()
    array.flags.writeable = False
    return array


def shifted(comm: Comm) -> Any:
    memory = np.zeros(20, np.float32)
    return comm.all_reduce(memory[:12], out=memory[4:16])


def forward(name: str, x: Any, **fields: Any) -> Call:
    def run(comm: Comm) -> Any:
        struct = getattr(collops, f"{name}Param")
        param = struct(rank=comm.rank, hccl_comm=comm, backend="shm", **fields)
        return collops.Operation(param).forward([x])

    return run


GATHER, SCATTER = plain("all_gather", X), plain("reduce_scatter", X)
REDUCE, BROADCAST = plain("all_reduce", X), plain("broadcast", X)
STRIDED = X.repeat(2, 1)[:, ::2]
# The fault of rank 1, what the others call, the fault's code, and a part of its message.
FAULTS: dict[str, tuple[Call, Call, int, str]] = {
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
    "scatter: op": (plain("reduce_scatter", X, "mul"), SCATTER, 1, "reduce_scatter: op must be on"),
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
    "reduce: op": (plain("all_reduce", X, None), REDUCE, 1, "all_reduce: op must be one of"),
    "reduce: avg": (plain("all_reduce", X.astype("i4"), "avg"), REDUCE, 13, "no avg of int32"),
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
            atb(name, change=lambda x: x.reshape(4, 3)),
            atb(name),
            1,
            f"{name}: none of the 1 kept plans has the shapes",
        )
        for name in ("AllGather", "ReduceScatter", "AllReduce", "Broadcast", "AllToAll")
    },
    **{
        f"{name}: forward": (
            forward(name, X.astype("u4")),
            atb(name),
            13,
            f"{name}: x is uint32",
        )
        for name in ("AllGather", "ReduceScatter", "AllReduce", "Broadcast", "AllToAll")
    },
}


def all_faults(rank: int) -> dict[str, tuple[tuple[int, str], Any]]:
    """Per fault: what this rank hears, and the result of the next call."""
    comm = collops.init(timeout_s=20)
    return {
        name: (
            outcome(partial(faulty if rank == 1 else right, comm)),
            comm.all_reduce(np.array([rank, 10])).tolist(),
        )
        for name, (faulty, right, _, _) in FAULTS.items()
    }


@pytest.fixture(scope="module")
def refused() -> list[dict[str, Any]]:
    return run_ranks(all_faults, 3)


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_call_is_refused(refused: list[Any], name: str) -> None:
    _, _, code, message = FAULTS[name]
    (own_code, own_message), _ = refused[1][name]
    assert (own_code, message in own_message) == (code, True), own_message
    for rank in (0, 2):
        (other_code, other_message), _ = refused[rank][name]
        assert other_code == 102
        assert "rank 1 " in other_message
        assert own_message[:100] in other_message
    assert [results[name][1] for results in refused] == [[3, 30]] * 3


# What rank 2 calls, what the others call, and what the message names besides the ranks.
DISAGREEMENTS: dict[str, tuple[Call, Call, list[str]]] = {
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
        forward("AllToAll", X.reshape(2, 6), transpose=True),
        forward("AllToAll", X.reshape(2, 6)),
        ["transpose", "0", "1"],
    ),
    "shape of all-to-all": (
        forward("AllToAll", X.reshape(3, 4)),
        forward("AllToAll", X),
        ["x's shape", "[3, 4]", "[6, 2]"],
    ),
    "all-to-all or gather": (
        forward("AllToAll", X),
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


def all_disagreements(rank: int) -> dict[str, Any]:
    results = {}
    for name, (odd, even, _) in DISAGREEMENTS.items():
        comm = collops.init(comm_domain=name, timeout_s=20)
        first = outcome(partial(odd if rank == 2 else even, comm))
        again = collops.init(comm_domain=name, timeout_s=20)
        results[name] = first, again.all_gather(np.array([rank])).tolist()
    return results


@pytest.fixture(scope="module", params=[False, True], ids=["processes", "threads"])
def disagreed(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return run_ranks(all_disagreements, 3, threads=request.param)


@pytest.mark.parametrize("name", DISAGREEMENTS)
def test_all_ranks_are_told_who_differs_in_what(disagreed: list[Any], name: str) -> None:
    for rank in range(3):
        (code, message), again = disagreed[rank][name]
        assert code == 102, message
        assert "the ranks disagree" in message
        assert "on rank 2" in message
        for word in DISAGREEMENTS[name][2]:
            assert word in message, message
        assert again == [0, 1, 2]


def test_levels_meet() -> None:
    def work(rank: int) -> Any:
        comm = collops.init()
        if rank:
            return comm.all_reduce(X).tolist()
        param = collops.AllReduceParam(rank=rank, hccl_comm=comm, backend="shm")
        return collops.Operation(param).forward([X])[0].tolist()

    assert run_ranks(work, 2) == [(X * 2).tolist()] * 2
