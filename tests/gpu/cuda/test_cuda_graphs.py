"""Backend cuda in captured graphs: steps are counted on the device, and so are waits watched."""

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience
from tests.gpu.cuda.cuda_ranks import (
    PROCESSES,
    THREADS,
    THREADS_ON_ONE,
    choose,
    communicator,
    fields,
    results,
)
from tests.gpu.gpu_ranks import Gather, Scatter, until_ended

SHORT, LONG = [7, 0, 300], [5000, 1, 3000]


@pytest.mark.parametrize("where", [PROCESSES, THREADS, THREADS_ON_ONE])
def test_graphs_are_replayed_in_any_order_between_other_calls(gpu: Any, where: str) -> None:
    """With other data each time, and when the operations that were captured are gone."""

    def work(rank: int) -> None:
        communicator(gpu, rank, 3, where, "graphs")
        have = fields(where, "graphs")
        stream = gpu.stream()
        plain = Scatter(gpu, rank, LONG, "float32", **have)
        plain.execute(stream)  # connects
        plain.check(0, stream)
        captured = [
            [
                Gather(gpu, rank, LONG, "int16", **have),
                Scatter(gpu, rank, SHORT, "float16", **have),
            ],
            [Scatter(gpu, rank, LONG, "float32", **have)],
        ]
        graphs = []
        for calls in captured:
            with gpu.captured(stream) as graph:
                for call in calls:
                    call.execute(stream)
                    del call.op  # the graph holds what it needs
            graphs.append(graph)
        gc.collect()
        for step, which in enumerate([1, 0, 0, 1, 0, 1], 1):
            for call in captured[which]:
                call.write(step)
            graphs[which].replay(stream)
            if step % 2 == 0:
                plain.write(step)
                plain.execute(stream)
                plain.check(step, stream)
            for call in captured[which]:
                call.check(step, stream)
        for graph in graphs:
            graph.destroy()

    results(where, 3, work)


def test_replays_that_disagree_are_found(gpu: Any) -> None:
    """Rank 1 replays another graph the third time: nothing moves, and both are told."""

    def work(rank: int) -> tuple[str, bool]:
        comm = communicator(gpu, rank, 2, PROCESSES, "differ")
        have = fields(PROCESSES, "differ")
        calls = [Gather(gpu, rank, [4, 3000], dtype, **have) for dtype in ("int32", "uint8")]
        stream = gpu.stream()
        calls[0].execute(stream)
        calls[0].check(0, stream)
        graphs = []
        for call in calls:
            with gpu.captured(stream) as graph:
                call.execute(stream)
            graphs.append(graph)
        for step in range(2):
            calls[0].write(step)
            graphs[0].replay(stream)
            calls[0].check(step, stream)
        comm.check()
        for call in calls:
            call.write(9)
        graphs[rank].replay(stream)
        graphs[0].replay(stream)  # the same on both, but the group has ended
        unchanged = all(np.all(gpu.array_on(stream, call.out) == 77) for call in calls)
        with pytest.raises(collops.RankMismatchError) as error:
            comm.check()
        return str(error.value), unchanged

    for text, unchanged in run_ranks(work, 2):
        assert "dtype" in text and "int32" in text and "uint8" in text
        assert unchanged


def replayed(gpu: Any, rank: int) -> tuple[Any, Any, Any, Any]:
    """A communicator of two ranks, and a graph of one call that was replayed once."""
    comm = communicator(gpu, rank, 2, PROCESSES, "replay")
    call = Gather(gpu, rank, [4, 3000], "int32", **fields(PROCESSES, "replay"))
    stream = gpu.stream()
    call.execute(stream)
    call.check(0, stream)
    with gpu.captured(stream) as graph:
        call.execute(stream)
    call.write(1)
    graph.replay(stream)
    call.check(1, stream)
    return comm, call, stream, graph


def test_a_replay_that_a_peer_never_makes_ends_at_the_time_out(gpu: Any) -> None:
    def work(rank: int) -> None:
        comm, call, stream, graph = replayed(gpu, rank)
        if rank == 1:
            assert until_ended(comm).name == "ERROR_TIMEOUT"
            return
        comm.timeout_s = 2
        call.write(2)
        begin = time.monotonic()
        graph.replay(stream)
        stream.synchronize()
        assert 1.5 < time.monotonic() - begin < patience(30)
        with pytest.raises(collops.RankTimeoutError, match="graph"):
            comm.check()
        graph.replay(stream)  # ends at once, and moves nothing
        stream.synchronize()
        assert np.all(gpu.array_on(stream, call.out)[4:] == 77)

    run_ranks(work, 2)


def test_a_late_replay_is_waited_for(gpu: Any) -> None:
    def work(rank: int) -> None:
        comm, call, stream, graph = replayed(gpu, rank)
        for step in range(2, 5):
            call.write(step)
            if step % 2 == rank:
                time.sleep(0.5)
            graph.replay(stream)
            call.check(step, stream)
        comm.check()

    run_ranks(work, 2)


def test_an_abort_ends_replays(gpu: Any) -> None:
    """Also one that comes when this rank has no call on a stream."""

    def work(rank: int) -> None:
        comm, _, stream, graph = replayed(gpu, rank)
        if rank == 1:
            comm.abort("enough")
            return
        time.sleep(0.5)
        begin = time.monotonic()
        graph.replay(stream)
        stream.synchronize()
        assert time.monotonic() - begin < patience(30)
        with pytest.raises(collops.AbortedError, match="enough"):
            comm.check()

    run_ranks(work, 2)


def test_calls_are_not_compared_by_the_host_while_they_are_captured(gpu: Any) -> None:
    def work(rank: int) -> tuple[str, str]:
        communicator(gpu, rank, 2, PROCESSES, "check")
        call = Gather(gpu, rank, [4, 3000], "int32", **fields(PROCESSES, "check"))
        stream = gpu.stream()
        call.execute(stream)
        call.check(0, stream)
        with gpu.captured(stream) as graph, pytest.raises(collops.Error) as error:
            call.execute(stream)
        graph.destroy()
        call.write(1)
        call.execute(stream)  # the communicator is good
        call.check(1, stream)
        return error.value.name, str(error.value)

    for name, text in run_ranks(work, 2, env={"COLLOPS_CHECK": "1"}):
        assert name == "ERROR_INVALID_STREAM"
        assert "COLLOPS_CHECK" in text and "captur" in text


def test_the_first_call_cannot_be_captured(gpu: Any) -> None:
    def work(rank: int) -> str:
        choose(gpu, rank, PROCESSES)
        call = Gather(gpu, rank, [4, 3000], "int32", **fields(PROCESSES, "first"))
        stream = gpu.stream()
        with gpu.captured(stream) as graph, pytest.raises(collops.Error) as error:
            call.execute(stream)
        graph.destroy()
        call.execute(stream)
        call.check(0, stream)
        return str(error.value)

    for text in run_ranks(work, 2):
        assert "first" in text and "captur" in text
