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
