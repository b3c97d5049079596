"""Messages on streams of their own, and in graphs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

import collops
from collops import RecvFrom, SendTo
from collops.testing import run_ranks

SLOW = {"COLLOPS_SIM_DELAY_US": "5000"}


def ones(npu: Any, count: int) -> Any:
    return npu.tensor(np.ones(count, np.float32))


def test_messages_follow_their_stream(npu: Any, torch_module: ModuleType) -> None:
    """What is sent was written on another stream; without the event, old values would go."""

    def work(rank: int) -> int:
        npu.choose(rank)
        torch, stale = torch_module, 0
        comm = collops.init(backend="hccl")
        x, out, source = (npu.tensor(np.zeros(4, np.float32)) for _ in range(3))
        writing, sending = torch.npu.Stream(), torch.npu.Stream()
        comm.exchange([SendTo(x, 1 - rank), RecvFrom(out, 1 - rank)])
        for number in range(8):
            source.copy_(torch.full((4,), float(10 * number + rank)))
            torch.npu.synchronize()
            with torch.npu.stream(writing):
                x.copy_(source)
            sending.wait_stream(writing)
            with torch.npu.stream(sending):
                if number % 2:
                    comm.exchange([SendTo(x, 1 - rank), RecvFrom(out, 1 - rank)])
                elif rank == 0:
                    comm.send(x, 1)
                    comm.recv(out, 1)
                else:
                    comm.recv(out, 0)
                    comm.send(x, 0)
            sending.synchronize()
            stale += npu.array(out).tolist() != [10 * number + 1 - rank] * 4
            torch.npu.synchronize()
        return stale

    assert run_ranks(work, 2, env=SLOW) == [0, 0]


def test_a_graph_of_messages_is_replayed(npu: Any, torch_module: ModuleType) -> None:
    def work(rank: int) -> list[float]:
        npu.choose(rank)
        torch = torch_module
        comm = collops.init(backend="hccl")
        x, out = ones(npu, 2), npu.tensor(np.zeros((2, 2), np.float32))

        def call() -> None:
            messages = [SendTo(x, 1 - rank), SendTo(x, 1 - rank)]
            comm.exchange([*messages, *(RecvFrom(row, 1 - rank) for row in out)])
            comm.all_reduce(x, out=x)

        call()
        torch.npu.synchronize()
        stream, found = torch.npu.Stream(), []
        with npu.captured(stream) as graph, torch.npu.stream(stream):
            call()
        for value in (3.0, 5.0):
            x.copy_(torch.full((2,), value + rank))
            torch.npu.synchronize()
            graph.replay(stream)
            stream.synchronize()
            found += [float(npu.array(out).sum()), float(npu.array(x)[1])]
        graph.destroy()
        return found

    assert run_ranks(work, 2) == [[16.0, 7.0, 24.0, 11.0], [12.0, 7.0, 20.0, 11.0]]
