"""Ranks that disagree on hccl: HCCL finds it, or with COLLOPS_CHECK=1 all ranks get an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

CHECK = {"COLLOPS_CHECK": "1"}


def gather_ins(npu: Any, rank: int, counts: list[int]) -> tuple[list[Any], list[Any]]:
    total = sum(counts)
    x = npu.tensor(np.arange(counts[rank], dtype=np.float32) + 10 * rank)
    displs = np.cumsum([0, *counts[:-1]])
    ins = [x, np.array([counts[rank]]), np.array(counts), displs, np.empty(total, np.float16)]
    return ins, [npu.poisoned((total,), x)]


def execute(op: collops.Operation, ins: list[Any], outs: list[Any]) -> collops.Error | None:
    op.get_workspace_size(ins, outs)
    try:
        op.execute(ins, outs)
    except collops.Error as error:
        return error
    return None


def test_agreeing_calls_run_as_without(npu: Any) -> None:
    def work(rank: int) -> list[list[int]]:
        npu.choose(rank)
        op = collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=3))
        return [npu.gather(op, rank, 3, value) for value in range(5)]

    assert run_ranks(work, 3, env=CHECK) == [[npu.gathered(3, v) for v in range(5)]] * 3


def test_counts_that_disagree_are_named_on_all(npu: Any) -> None:
    def work(rank: int) -> tuple[int, str, bool]:
        npu.choose(rank)
        op = collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=2))
        ins, outs = gather_ins(npu, rank, [2, 3] if rank == 0 else [1, 3])
        error = execute(op, ins, outs)
        assert error is not None
        return error.code, error.message, bool((npu.array(outs[0]).view(np.uint8) == 0xA5).all())

    for code, message, untouched in run_ranks(work, 2, env=CHECK):
        assert code == 102
        assert "recvCounts[0]" in message
        assert "2 on rank 0" in message
        assert "1 on rank 1" in message
        assert untouched


def test_two_operators_are_named_on_all(npu: Any) -> None:
    def work(rank: int) -> tuple[int, str]:
        npu.choose(rank)
        if rank == 0:
            op = collops.Operation(collops.AllGatherVParam(rank=0, rank_size=2))
            error = execute(op, *gather_ins(npu, 0, [2, 2]))
        else:
            op = collops.Operation(collops.ReduceScatterVParam(rank=1, rank_size=2))
            x = npu.tensor(np.ones((4, 1), np.float32))
            counts, displs = np.array([2, 2]), np.array([0, 2])
            ins = [x, counts, displs, counts[:1], np.empty(2, np.float16)]
            error = execute(op, ins, [npu.poisoned((2, 1), x)])
        assert error is not None
        return error.code, error.message

    for code, message in run_ranks(work, 2, env=CHECK):
        assert code == 102
        assert "AllGatherV" in message
        assert "ReduceScatterV" in message


def test_a_refusal_reaches_the_others_and_the_communicator_stays(npu: Any) -> None:
    def work(rank: int) -> tuple[int, str, list[int]]:
        npu.choose(rank)
        op = collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=2))
        npu.gather(op, rank, 2)
        ins, outs = gather_ins(npu, rank, [2, 3])
        op.get_workspace_size(ins, outs)
        if rank == 1:
            ins[2] = npu.tensor(ins[2])
        with pytest.raises(collops.Error) as caught:
            op.execute(ins, outs)
        return caught.value.code, caught.value.message, npu.gather(op, rank, 2, 9)

    others, own = run_ranks(work, 2, env=CHECK)
    reason = "AllGatherV: recvCounts is on npu:1; counts are host tensors: .cpu()"
    assert own == (14, reason, npu.gathered(2, 9))
    assert (others[0], others[2]) == (102, npu.gathered(2, 9))
    assert reason in others[1]


def test_who_compares_and_who_does_not_is_found_at_first_contact(npu: Any) -> None:
    def work(rank: int) -> tuple[int, str]:
        import os

        os.environ["COLLOPS_CHECK"] = str(rank)
        npu.choose(rank)
        op = collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=2))
        with pytest.raises(collops.Error) as caught:
            npu.gather(op, rank, 2)
        return caught.value.code, caught.value.message

    for code, message in run_ranks(work, 2):
        assert code == 102
        assert "COLLOPS_CHECK is 0 on rank 0" in message
        assert "and 1 on rank 1" in message


def test_without_a_check_the_engine_finds_out(npu: Any) -> None:
    def work(rank: int) -> tuple[int, str]:
        npu.choose(rank)
        op = collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=2))
        ins, outs = gather_ins(npu, rank, [2, 3] if rank == 0 else [1, 3])
        assert execute(op, ins, outs) is None  # it is on the stream
        with pytest.raises(RuntimeError):
            npu.array(outs[0])
        error = execute(op, ins, outs)
        assert error is not None
        return error.code, error.message

    for code, message in run_ranks(work, 2):
        assert code in (25, 101, 104)
        assert "AllGatherV: " in message


@pytest.mark.parametrize("text", ["2", "yes"])
def test_a_wrong_value_is_refused(npu: Any, text: str) -> None:
    def work(rank: int) -> str:
        npu.choose(rank)
        with pytest.raises(collops.Error) as caught:
            collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=2))
        return caught.value.message

    for message in run_ranks(work, 2, env={"COLLOPS_CHECK": text}):
        assert f'COLLOPS_CHECK must be 0 or 1, got "{text}"' in message
