"""What AllToAllV and AllToAllVV2 refuse: locally, and together with the other ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import collops
from collops import TensorDesc as Desc
from collops.testing import run_ranks

LISTS = {"send_counts": [2, 1], "sdispls": [0, 2], "recv_counts": [2, 2], "rdispls": [0, 2]}
X = np.arange(4, dtype=np.float32)


def create(**fields: Any) -> collops.Operation:
    """AllToAllV of rank 0 of 2 with some other fields."""
    values = {"rank": 0, "rank_size": 2, "backend": "shm", "comm_domain": "exchange", **LISTS}
    return collops.Operation(collops.AllToAllVParam(**{**values, **fields}))


def create_v2(**fields: Any) -> collops.Operation:
    """AllToAllVV2 of rank 0 of 2 with some other fields."""
    values = {"rank": 0, "rank_size": 2, "backend": "shm", "comm_domain": "exchange", **fields}
    return collops.Operation(collops.AllToAllVV2Param(**values))


def code_and_message(run: Callable[[], Any]) -> tuple[int, str]:
    try:
        run()
    except collops.Error as error:
        return error.code, error.message
    return 0, ""


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rsv": b"\1" + bytes(63), "backend": "hccc"}, "rsv[0]"),
        ({"backend": "lccl", "rank_size": 1}, 'backend "lccl" does not run this operator'),
        ({"rank_size": 1, "comm_mode": 5}, "rankSize must be >= 2, got 1"),
        ({"comm_mode": 5, "rank": 7}, "COMM_MULTI_THREAD), got 5"),
        ({"comm_domain": "d" * 129}, "commDomain has 129 characters"),
        ({"rank_table_file": "/no/such/table.json"}, 'rankTableFile "/no/such/table.json"'),
        ({"rank": 2}, "rank must be in [0, 2), got 2"),
        ({"rank_root": -1}, "rankRoot must be in [0, 2), got -1"),
    ],
)
def test_creation_is_refused(fields: dict[str, Any], message: str) -> None:
    for name, make in (("AllToAllV", create), ("AllToAllVV2", create_v2)):
        code, said = code_and_message(partial(make, **fields))
        assert (code, message in said, said.startswith(name)) == (1, True, True), said


def test_lists_of_the_struct() -> None:
    for fields, message in (
        ({"send_counts": []}, "sendCounts must have 2 numbers, one per rank, got 0"),
        ({"rdispls": [0, 1, 2]}, "rdispls must have 2 numbers, one per rank, got 3"),
        ({"sdispls": [0, -1]}, "sdispls[1] must be >= 0, got -1"),
    ):
        code, said = code_and_message(partial(create, **fields))
        assert (code, said) == (1, f"AllToAllV: {message}")


def test_lists_against_a_communicator_that_knows_its_size() -> None:
    def make(rank: int) -> tuple[int, str]:
        with collops.init() as comm:
            fields = {"rank": rank, "rank_size": 0, "hccl_comm": comm, "comm_domain": ""}
            assert create(**fields).name == "AllToAllV"
            return code_and_message(partial(create, **fields, sdispls=[0, 0, 0]))

    said = "AllToAllV: sdispls must have 2 numbers, one per rank, got 3"
    assert run_ranks(make, 2) == [(1, said)] * 2


FIRST_PHASE: list[tuple[dict[str, Any], Any, int, str]] = [
    ({}, Desc((), "float32"), 8, "x has 0 dims"),
    ({}, Desc((1,) * 9, "float32"), 8, "x has 9 dims"),
    ({}, Desc((2, 0), "float32"), 9, "x has size 0 in dim 1"),
    ({}, Desc((4,), "uint32"), 13, "x is uint32; pass one of"),
    ({}, Desc((4,), "float32", "nhwc"), 13, "x has format nhwc"),
    ({}, Desc((2,), "float32"), 1, "slice 1 (sdispls 2 + sendCounts 1) exceeds x's 2 elements"),
    ({"recv_counts": [2**62, 2**62]}, X, 1, "sum of recvCounts does not fit into 64 bits"),
    ({"recv_counts": [0, 0]}, X, 1, "all recvCounts are 0: this rank must receive something"),
    ({"rdispls": [0, 3]}, X, 1, "block 1 (rdispls 3 + recvCounts 2) exceeds the output's 4"),
    ({"rdispls": [0, 1]}, X, 1, "block 0 (rdispls 0 + recvCounts 2) overlaps block 1"),
    (
        {"recv_counts": [2**40, 1], "rdispls": [0, 2**40]},
        X,
        9,
        "the output of shape [1, 1099511627777] is over the limit",
    ),
]


@pytest.mark.parametrize(("fields", "x", "code", "message"), FIRST_PHASE)
def test_the_first_phase(fields: dict[str, Any], x: Any, code: int, message: str) -> None:
    op = create(**fields)
    for run in (op.infer_shape, lambda ins: op.get_workspace_size(ins, [X.reshape(1, 4)])):
        got, said = code_and_message(partial(run, [x]))
        assert (got, message in said) == (code, True), said


@pytest.mark.parametrize(
    ("position", "value", "code", "message"),
    [
        (1, np.array([[1, 1]]), 16, "sendCounts must have 1 dim"),
        (4, np.array([0]), 8, "rdispls must have 2 elements, one per rank, got 1"),
        (2, np.array([0, 2], np.int32), 13, "sdispls is int32; counts are elements as int64"),
        (5, np.empty(4, np.float16), 13, "pass an empty int8 tensor of 4, got float16"),
        (5, np.empty(0, np.int8), 9, "the output has size 0 in dim 1 of [1, 0]"),
        (2, np.array([0, 4]), 8, "slice 1 (sdispls 4 + sendCounts 1) exceeds x's 4 elements"),
        (4, np.array([0, 3]), 8, "block 1 (rdispls 3 + recvCounts 2) exceeds the output's 4"),
        (3, np.array([2, 1]), 8, "recvCounts add up to 3 but y has length 4: they must be equal"),
        (1, np.array([-1, 1]), 1, "sendCounts[0] must be >= 0, got -1"),
        (4, np.array([2, 1]), 1, "block 1 (rdispls 1 + recvCounts 2) overlaps block 0"),
        (3, Desc((2,), "int64"), 1, "recvCounts has no host data"),
    ],
)
def test_inputs_of_the_second_version(position: int, value: Any, code: int, message: str) -> None:
    ins: list[Any] = [X, *(np.array(numbers) for numbers in LISTS.values()), np.empty(4, np.int8)]
    ins[position] = value
    length = 0 if code == 9 else 4
    outs = [np.empty((1, length), np.float32)]
    got, said = code_and_message(lambda: create_v2().get_workspace_size(ins, outs))
    assert (got, message in said) == (code, True), said


def call(
    comm: collops.Communicator,
    change: dict[str, list[int]] | None = None,
    *,
    v2: bool = False,
    dtype: str = "float32",
    root: int = 0,
    planned: bool = True,
) -> Any:
    """Every rank sends rank q q + 1 elements; `change` replaces lists of this rank."""
    size = comm.size
    lists = {
        "send_counts": [q + 1 for q in range(size)],
        "sdispls": [0] * size,
        "recv_counts": [comm.rank + 1] * size,
        "rdispls": [q * (comm.rank + 1) for q in range(size)],
        **(change or {}),
    }
    fields: dict[str, Any] = {"rank": comm.rank, "hccl_comm": comm, "backend": "shm"}
    x = (np.arange(size) + 10 * comm.rank).astype(dtype)
    ins: list[Any] = [x]
    if v2:
        op = collops.Operation(collops.AllToAllVV2Param(rank_root=root, **fields))
        ins += [np.array(numbers) for numbers in lists.values()]
        ins.append(np.empty(sum(lists["recv_counts"]), np.int8))
    else:
        op = collops.Operation(collops.AllToAllVParam(rank_root=root, **fields, **lists))
    outs = [np.full((1, sum(lists["recv_counts"])), -1, dtype)]
    if planned:
        op.get_workspace_size(ins, outs)
    op.execute(ins, outs)
    return outs[0].tolist()


def wrong_of_rank_1(rank: int, v2: bool) -> list[Any]:
    comm = collops.init(timeout_s=20)
    heard = [code_and_message(lambda: call(comm, v2=v2, planned=rank != 1))]
    return [*heard, call(comm, v2=v2)]


@pytest.mark.parametrize("v2", [False, True])
def test_a_rank_that_refuses(v2: bool) -> None:
    results = run_ranks(wrong_of_rank_1, 3, v2)
    code, said = results[1][0]
    assert (code, "none of the 0 kept plans" in said) == (1, True)
    for rank in (0, 2):
        code, heard = results[rank][0]
        assert (code, "rank 1 " in heard, said[:60] in heard) == (102, True, True)
    assert [result[1] for result in results] == [
        [[0, 10, 20]],
        [[0, 1, 10, 11, 20, 21]],
        [[0, 1, 2, 10, 11, 12, 20, 21, 22]],
    ]


# What rank 2 does otherwise, and what the message names.
DISAGREEMENTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "sent": (
        {"change": {"send_counts": [1, 1, 3]}},
        ["sendCounts[1] is 1 on rank 2", "recvCounts[2] is 2 on rank 1"],
    ),
    "received": (
        {"change": {"recv_counts": [3, 1, 3], "rdispls": [0, 3, 4]}},
        ["sendCounts[2] is 3 on rank 1", "recvCounts[1] is 1 on rank 2"],
    ),
    "itself": (
        {"change": {"recv_counts": [3, 3, 2]}},
        ["sendCounts[2] is 3 on rank 2", "recvCounts[2] is 2 on rank 2"],
    ),
    "dtype": ({"dtype": "float64"}, ["dtype", "float32", "float64"]),
    "root": ({"root": 1}, ["rankRoot", "0", "1"]),
    "operator": ({"v2": True}, ["the operator is AllToAllV on", "AllToAllVV2 on"]),
}


@pytest.mark.parametrize("name", DISAGREEMENTS)
def test_ranks_that_disagree(name: str) -> None:
    otherwise, parts = DISAGREEMENTS[name]

    def run(rank: int) -> tuple[int, str]:
        with collops.init(timeout_s=20) as comm:
            return code_and_message(lambda: call(comm, **(otherwise if rank == 2 else {})))

    results = run_ranks(run, 3)
    for code, said in results:
        assert code == 102
        assert [part for part in parts if part not in said] == [], said
