"""A group's calls in captured graphs: nothing waits while they are captured, and replays read what
the tensors hold then."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

import collops.torch as ct
from collops.torch.serving import SglangCommunicator
from tests.devices.torch import simulated_torch
from tests.devices.torch.device_groups import BACKENDS, on, run_device_group
from tests.torch.groups import default_group


@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_are_replayed_with_other_data(backend: str) -> None:
    """One on the captured stream, and asynchronous ones on the group's own."""

    def work(rank: int) -> list[list[float]]:
        x, y = torch.zeros(2).cuda(), torch.zeros(2).cuda()
        whole = torch.zeros(4).cuda()
        dist.all_reduce(x)  # connects
        dist.all_reduce(y, async_op=True).wait()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            dist.all_reduce(x)
            call = dist.all_reduce(y, async_op=True)
            call.wait()
            dist.all_gather_into_tensor(whole, x + y)
        found = []
        for step in range(3):
            x.fill_(step + rank)
            y.fill_(10.0 * (step + rank))
            graph.replay()
            torch.cuda.synchronize()
            found.append([*x.tolist(), *y.tolist(), *whole.tolist()])
        return found

    for found in run_device_group(work, 2, env=on(backend)):
        for step, values in enumerate(found):
            total = 2 * step + 1
            assert values == [total, total, 10 * total, 10 * total, *[11 * total] * 4]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_second_graph_does_not_wait_for_the_first(asynchronous: bool) -> None:
    """What the first one captured is no work that a stream could wait for."""

    def work(rank: int) -> list[float]:
        x = torch.ones(2).cuda()
        dist.all_reduce(x, async_op=True).wait()
        graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
        torch.cuda.synchronize()
        for graph, apart in zip(graphs, (True, asynchronous), strict=True):
            with torch.cuda.graph(graph):
                call = dist.all_reduce(x, async_op=apart)
                if apart:
                    call.wait()
        dist.all_reduce(x)
        for graph in graphs:
            graph.replay()
        dist.all_reduce(x, async_op=True).wait()
        return x.tolist()

    assert run_device_group(work, 2) == [[32.0, 32.0]] * 2


def test_a_call_after_a_capture_waits_for_that_before_it() -> None:
    """The captured call between them has put nothing on a stream."""

    def work(rank: int) -> tuple[bool, list[float]]:
        x, y = torch.ones(2).cuda(), torch.ones(2).cuda()
        group, graph = default_group(), torch.cuda.CUDAGraph()
        dist.all_reduce(x, async_op=True).wait()
        torch.cuda.synchronize()
        own = group._device_calls([x]).streams.own
        with simulated_torch.held(own):
            call = dist.all_reduce(x, async_op=True)
            with torch.cuda.stream(torch.cuda.Stream()):
                graph.capture_begin()  # torch.cuda.graph would wait for the held stream
                dist.all_reduce(y)
                graph.capture_end()
            group.communicator_for(x.device)
            time.sleep(0.3)
            ended = bool(torch.cuda.current_stream().query())
        call.wait()
        graph.replay()
        torch.cuda.synchronize()
        return ended, [*x.tolist(), *y.tolist()]

    assert run_device_group(work, 2) == [(False, [4.0, 4.0, 2.0, 2.0])] * 2


def test_operators_and_sglang_are_captured() -> None:
    def work(rank: int) -> list[Any]:
        x, out = torch.zeros(rank + 1, 2).cuda(), torch.zeros(3, 2).cuda()
        engine = SglangCommunicator(dist.group.WORLD, "cuda")
        ct.all_gatherv(x, [1, 2], out=out)
        engine.reduce_scatter(x, out, sizes=[1, 2])
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ct.all_gatherv(x, [1, 2], out=out)
            engine.reduce_scatter(x, out, sizes=[1, 2])
        found = []
        for step in range(1, 3):
            x.fill_(step + 10 * rank)
            graph.replay()
            torch.cuda.synchronize()
            found.append(x.tolist())
        return found

    zero, one = run_device_group(work, 2)
    assert zero == [[[2.0, 2.0]], [[4.0, 4.0]]]
    assert one == [[[22.0, 22.0]] * 2, [[24.0, 24.0]] * 2]
