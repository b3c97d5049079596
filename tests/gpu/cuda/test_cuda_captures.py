"""Backend cuda: the calls of a group in one graph, on several streams."""

from __future__ import annotations

import threading
from typing import Any

import collops
from collops.testing import run_ranks
from patience import patience
from tests.gpu.gpu_ranks import Gather

SIZES = [3000, 700]
GLOBAL = 0  # a mode of captures: no thread may do what could disturb one


def join(gpu: Any, stream: Any, other: Any) -> None:
    """What comes on `other` later waits for what is on `stream`."""
    event = gpu.cuda.event()
    assert gpu.cuda.record(event, stream.ptr) == 0
    assert gpu.cuda.wait(other.ptr, event) == 0


def test_captured_calls_on_two_streams_come_one_after_the_other(gpu: Any) -> None:
    """Their kernels count the steps of one group, so two at once would wait for ever."""

    def work(rank: int) -> None:
        gpu.choose(rank)
        calls = [Gather(gpu, rank, SIZES, "float32", backend="cuda") for _ in range(2)]
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
            for seed, call in enumerate(calls):
                call.write(10 * seed + step)
            graph.replay(first)
            for seed, call in enumerate(calls):
                call.check(10 * seed + step, first)
        graph.destroy()

    run_ranks(work, 2, env={"COLLOPS_SIM_DELAY_US": "3000"})


def test_a_call_does_not_end_the_capture_of_another_thread(gpu: Any) -> None:
    """Before each call the events of earlier ones are asked for."""

    def work(_: int) -> list[int]:
        begun, called, ended = (threading.Event() for _ in range(3))
        codes: list[int] = []

        def of(rank: int) -> None:
            gpu.choose(rank)
            mode = collops.CommMode.COMM_MULTI_THREAD
            call = Gather(gpu, rank, SIZES, "float32", backend="cuda", comm_mode=mode)
            stream = gpu.stream()
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
