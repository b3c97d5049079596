"""A call runs on its communicator's NPU, whichever one the thread has chosen."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks


def planned(npu: Any, rank: int) -> tuple[collops.Operation, list[Any], Any]:
    """A ReduceScatterV with a tail to be zeroed, so HCCL and the runtime are both needed."""
    op = collops.Operation(collops.ReduceScatterVParam(rank=rank, rank_size=2))
    x = npu.tensor(np.arange(4, dtype=np.float32).reshape(4, 1) + rank)
    counts = np.array([2, 2])
    ins = [x, counts, np.array([0, 2]), counts[rank : rank + 1], np.empty(3, np.float16)]
    out = npu.poisoned((3, 1), x)
    op.get_workspace_size(ins, [out])
    return op, ins, out


def wanted(rank: int) -> list[float]:
    first = 4 * rank + 1
    return [first, first + 2, 0]


def in_thread(call: Any) -> None:
    """Runs a call in a thread of its own, and raises its error here."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("where", ["here", "thread"])
def test_the_chosen_npu_may_change(npu: Any, torch_module: ModuleType, where: str) -> None:
    def work(rank: int) -> tuple[list[float], int]:
        npu.choose(rank)
        op, ins, out = planned(npu, rank)
        stream = torch_module.npu.current_stream()
        if where == "here":
            npu.choose(3)
            op.execute(ins, [out], stream=stream)
        else:
            in_thread(lambda: op.execute(ins, [out], stream=stream.npu_stream))
        chosen = int(torch_module.npu.current_device())
        npu.choose(rank)
        return [float(value) for value in npu.array(out).reshape(-1)], chosen

    results = run_ranks(work, 2)
    assert [result for result, _ in results] == [wanted(0), wanted(1)]
    assert [chosen for _, chosen in results] == ([3, 3] if where == "here" else [0, 1])


def test_a_thread_without_an_npu_may_close_it(npu: Any) -> None:
    def work(rank: int) -> tuple[int, int]:
        npu.choose(rank)
        comm = collops.init(backend="hccl")
        npu.gather(collops.Operation(collops.AllGatherVParam(hccl_comm=comm)), rank, 2)
        comm.barrier()
        before = npu.live_communicators()
        in_thread(comm.close)
        return before, npu.live_communicators()

    assert run_ranks(work, 2) == [(1, 0)] * 2


def test_a_product_is_planned_for_the_npu_that_was_chosen_last(
    npu: Any, torch_module: ModuleType
) -> None:
    """The operation is made before; its sizes are asked for before the ranks are connected."""

    def work(rank: int) -> list[float]:
        kind = collops.ParallelType.LINEAR_ALL_REDUCE
        op = collops.Operation(
            collops.LinearParallelParam(rank=rank, rank_size=2, trans_weight=False, type=kind)
        )
        npu.choose(rank)
        x, weight = npu.tensor(np.ones((1, 3), np.float32)), npu.tensor(np.eye(3, dtype=np.float32))
        out = npu.poisoned((1, 3), x)
        bytes_ = op.get_workspace_size([x, weight], [out])
        workspace = torch_module.empty(bytes_, dtype=torch_module.uint8, device="npu")
        op.execute([x, weight], [out], workspace)
        return [float(value) for value in npu.array(out).reshape(-1)]

    assert run_ranks(work, 2) == [[2, 2, 2]] * 2


def test_a_rank_that_chose_none_says_so_in_first_contact(npu: Any) -> None:
    """HCCL is called after the others have got the error, so no rank waits for its time-out."""

    def work(rank: int) -> tuple[int, str]:
        if rank == 0:
            npu.choose(0)
        with pytest.raises(collops.Error) as caught:
            collops.init(backend="hccl")
        return caught.value.code, caught.value.message

    other, own = run_ranks(work, 2)
    assert own[0] == 1
    assert "no NPU is chosen in this thread" in own[1]
    assert other[0] == 102
    assert own[1] in other[1]
