"""Backend cuda: the calls of a group in one graph, on several streams."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

import collops
from collops.testing import run_ranks
from patience import patience
from tests.gpu.gpu_ranks import begins, numbers

COUNTS = np.array([3000, 700], np.int64)
GLOBAL = 0  # a mode of captures: no thread may do what could disturb one


class Gather:
    """An AllGatherV of rank `rank` of 2 whose tensors stay where they are."""

    def __init__(self, gpu: Any, op: collops.Operation, rank: int, seed: int) -> None:
        self.op, self.rank, self.seed = op, rank, seed
        self.x = gpu.tensor(self.values(0, rank))
        self.out = gpu.poisoned((int(COUNTS.sum()),), self.x)
        y = np.empty(int(COUNTS.sum()), np.float16)
        self.inputs = [self.x, COUNTS[rank : rank + 1], COUNTS, begins(COUNTS), y]
        op.get_workspace_size(self.inputs, [self.out])

    def values(self, step: int, rank: int) -> Any:
        return numbers(rank, int(COUNTS[rank]), "float32", 100 * self.seed + step)

    def execute(self, stream: Any) -> None:
        self.op.execute(self.inputs, [self.out], stream=stream)


def join(gpu: Any, stream: Any, other: Any) -> None:
    """What comes on `other` later waits for what is on `stream`."""
    event = gpu.cuda.event()
    assert gpu.cuda.record(event, stream.ptr) == 0
    assert gpu.cuda.wait(other.ptr, event) == 0


def test_captured_calls_on_two_streams_come_one_after_the_other(gpu: Any) -> None:
    """Their kernels count the steps of one group, so two at once would wait for ever."""

    def work(rank: int) -> None:
        gpu.choose(rank)
        op = collops.Operation(
            collops.AllGatherVParam(rank=rank, rank_size=2, backend="cuda", comm_domain="lanes")
        )
        calls = [Gather(gpu, op, rank, seed) for seed in range(2)]
        first, second = gpu.stream(), gpu.stream()
        calls[0].execute(first)  # connects
        first.synchronize()
        with gpu.captured(first) as graph:
            join(gpu, first, second)
            calls[0].execute(first)
            calls[1].execute(second)
            calls[0].execute(first)
            join(gpu, second, first)
        for step in range(1, 4):
            for call in calls:
                call.x.write(call.values(step, rank))
            graph.replay(first)
            first.synchronize()
            for call in calls:
                expected = np.concatenate([call.values(step, r) for r in range(2)])
                np.testing.assert_array_equal(gpu.array(call.out), expected)
        graph.destroy()

    run_ranks(work, 2, env={"COLLOPS_SIM_DELAY_US": "3000"})


def test_a_call_does_not_end_the_capture_of_another_thread(gpu: Any) -> None:
    """Before each call the events of earlier ones are asked for."""

    def work(_: int) -> list[int]:
        begun, called, ended = (threading.Event() for _ in range(3))
        codes: list[int] = []

        def of(rank: int) -> None:
            gpu.choose(rank)
            op = collops.Operation(
                collops.AllGatherVParam(
                    rank=rank, rank_size=2, backend="cuda", comm_domain="global",
                    comm_mode=collops.CommMode.COMM_MULTI_THREAD,
                )
            )  # fmt: skip
            call, stream = Gather(gpu, op, rank, 0), gpu.stream()
            call.execute(stream)
            stream.synchronize()
            if rank == 0:
                captured = gpu.stream()
                assert gpu.cuda.begin_capture(captured.ptr, GLOBAL) == 0
                begun.set()
                called.wait(patience(60))
                codes.append(gpu.cuda.end_capture(captured.ptr)[0])
                ended.set()
                call.execute(stream)
            else:
                begun.wait(patience(60))
                call.execute(stream)
                called.set()
                ended.wait(patience(60))
            stream.synchronize()

        threads = [threading.Thread(target=of, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return codes

    assert run_ranks(work, 1) == [[0]]
