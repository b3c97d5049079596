"""Operation.update: an equal struct is nothing new, another one starts anew, an error is undone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks


def param(**fields: Any) -> collops.AllGatherVParam:
    return collops.AllGatherVParam(**{"rank": 0, "rank_size": 2, "backend": "shm", **fields})


def tensors(rank: int) -> list[Any]:
    counts = np.array([1, 2])
    x = np.full((2, 1), 10.0 + rank)
    return [x, counts[rank : rank + 1], counts, np.array([0, 1]), np.empty(3, np.float16)]


def plan(op: collops.Operation) -> list[Any]:
    out = np.empty((3, 1))
    op.get_workspace_size(tensors(0), [out])
    return [out]


def has_plan(op: collops.Operation, outs: list[Any]) -> bool:
    """Whether execute finds a plan: only then it goes on to look at the memory."""
    read_only = np.empty((3, 1))
    read_only.flags.writeable = False
    with pytest.raises(collops.Error) as caught:
        op.execute(tensors(0), [read_only])
    assert "read-only" in caught.value.message or "no plan" in caught.value.message
    return "read-only" in caught.value.message


def work_with_plans(rank: int) -> list[bool]:
    comm = collops.init(comm_domain="one")
    op = collops.Operation(param(rank=rank, comm_domain="one"))
    outs = plan(op) if rank == 0 else []
    if rank == 1:  # takes part in the refusals of rank 0
        for _ in range(3):
            with pytest.raises(collops.RankMismatchError):
                comm.all_gatherv(np.ones(1), [1, 1])
        return []
    found = [has_plan(op, outs)]
    op.update(param(comm_domain="one"))
    found.append(has_plan(op, outs))
    op.update(param(comm_domain="one", rank_root=1))
    found.append(has_plan(op, outs))
    return found


def test_an_equal_struct_keeps_the_plans() -> None:
    assert run_ranks(work_with_plans, 2)[0] == [True, True, False]


def test_another_domain_is_another_communicator() -> None:
    def work(rank: int) -> list[Any]:
        op = collops.Operation(param(rank=rank, comm_domain="a"))
        [first] = op.forward(tensors(rank))
        op.update(param(rank=1 - rank, comm_domain="b"))
        [second] = op.forward(tensors(1 - rank))
        op.update(param(rank=rank, comm_domain="a"))  # it lives: no new first contact
        [third] = op.forward(tensors(rank))
        return [out.ravel().tolist() for out in (first, second, third)]

    want = [10.0, 11.0, 11.0]
    assert run_ranks(work, 2) == [[want] * 3] * 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rank_size": 1}, "rankSize must be >= 2"),
        ({"backend": "none"}, "unknown backend"),
        ({"rank_root": 7}, "rankRoot"),
        ({"hccl_comm": 1}, "not an open communicator"),
        ({"comm_mode": 1}, "already has a communicator of comm_mode 0"),
        ({"rsv": b"\1" + bytes(63)}, "rsv"),
    ],
)
def test_after_an_error_the_operation_is_as_before(wrong: dict[str, Any], message: str) -> None:
    def work(rank: int) -> list[Any]:
        op = collops.Operation(param(rank=rank))
        with pytest.raises(collops.Error) as caught:
            op.update(param(rank=rank, **wrong))
        assert message in caught.value.message
        [out] = op.forward(tensors(rank))
        op.update(param(rank=rank))  # equal to the struct that is still in force
        [again] = op.forward(tensors(rank))
        return [out.ravel().tolist(), again.ravel().tolist()]

    assert run_ranks(work, 2) == [[[10.0, 11.0, 11.0]] * 2] * 2


def test_another_class_of_struct_is_an_error() -> None:
    op = collops.Operation(param())
    other: Any = collops.ReduceScatterVParam(rank=0, rank_size=2, backend="shm", comm_domain="new")
    with pytest.raises(collops.Error) as caught:
        op.update(other)
    assert caught.value.code == 1
    assert caught.value.message == (
        "AllGatherV: update() needs another AllGatherVParam, got ReduceScatterVParam"
    )
    with pytest.raises(collops.Error, match="parameter struct such as AllGatherVParam"):
        op.update({"rank": 0})  # type: ignore[arg-type]
    assert op.name == "AllGatherV"
    collops.init(0, 1, comm_domain="new").close()  # the refused struct has made nothing


def test_the_numbers_of_tensors() -> None:
    op = collops.Operation(param())
    assert (op.input_num, op.output_num) == (5, 1)
    assert repr(op) == "<collops.Operation AllGatherV: 5 inputs, 1 output>"
