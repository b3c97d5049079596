"""Backend nccl on streams: captured graphs, streams of the caller's, ranks that are threads, and an
ncclComm_t of the caller's."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
from nccl_ranks import begins, numbers, reduced, scatter, scattered

import collops
from collops.testing import run_ranks

SIZES = [3, 5]


class Scatter:
    """A ReduceScatterV of rank `rank` of 2 whose tensors stay where they are."""

    def __init__(self, gpu: Any, rank: int, dtype: str, **fields: Any) -> None:
        self.rank, self.dtype = rank, dtype
        self.op = collops.Operation(
            collops.ReduceScatterVParam(rank=rank, rank_size=2, backend="nccl", **fields)
        )
        counts = np.array(SIZES, np.int64)
        self.x = gpu.tensor(self.values(0).reshape(-1, 1))
        self.out = gpu.poisoned((SIZES[rank], 1), self.x)
        y = np.empty(SIZES[rank], np.float16)
        self.inputs = [self.x, counts, begins(SIZES), counts[rank : rank + 1], y]
        size = self.op.get_workspace_size(self.inputs, [self.out])
        self.workspace = gpu.poisoned((size,), gpu.tensor(np.zeros(1, np.uint8)))

    def values(self, step: int, rank: int | None = None) -> Any:
        return numbers(self.rank if rank is None else rank, sum(SIZES), self.dtype, step)

    def execute(self, stream: Any) -> None:
        self.op.execute(self.inputs, [self.out], self.workspace, stream=stream)

    def expected(self, step: int) -> Any:
        begin = begins(SIZES)[self.rank]
        part = slice(begin, begin + SIZES[self.rank])
        return reduced([self.values(step, r)[part] for r in range(2)], "sum")


def test_a_graph_replays_with_other_data(gpu: Any) -> None:
    def work(rank: int) -> None:
        gpu.choose(rank)
        call = Scatter(gpu, rank, "float32", comm_domain="graph")
        stream = gpu.stream()
        call.execute(stream)  # connects
        stream.synchronize()
        with gpu.captured(stream) as graph:
            call.execute(stream)
            call.execute(stream)
        for step in range(1, 4):
            call.x.write(call.values(step).reshape(-1, 1))
            graph.replay(stream)
            stream.synchronize()
            np.testing.assert_array_equal(gpu.array(call.out)[:, 0], call.expected(step))
        graph.destroy()

    run_ranks(work, 2)


def test_calls_on_two_streams_keep_apart(gpu: Any) -> None:
    def work(rank: int) -> None:
        gpu.choose(rank)
        calls = [Scatter(gpu, rank, dtype, comm_domain="two") for dtype in ("float32", "float16")]
        streams = [gpu.stream(), gpu.stream()]
        for call, stream in zip(calls, streams, strict=True):
            call.execute(stream)
        for call in calls:
            np.testing.assert_array_equal(gpu.array(call.out)[:, 0], call.expected(0))

    run_ranks(work, 2, env={"COLLOPS_SIM_DELAY_US": "3000"})


def test_ranks_may_be_threads(gpu: Any) -> None:
    def work(_: int) -> list[Any]:
        found: list[Any] = [None] * 3

        def of(rank: int) -> None:
            gpu.choose(rank)
            op = collops.Operation(
                collops.ReduceScatterVParam(
                    rank=rank, rank_size=3, backend="nccl", comm_domain="threads",
                    comm_mode=collops.CommMode.COMM_MULTI_THREAD,
                )
            )  # fmt: skip
            found[rank] = scatter(op, gpu, rank, [2, 0, 4], "float32")

        threads = [threading.Thread(target=of, args=(rank,)) for rank in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    [found] = run_ranks(work, 1)
    for rank, got in enumerate(found):
        np.testing.assert_array_equal(got, scattered(rank, [2, 0, 4], "float32", "sum"))


def test_an_nccl_comm_of_the_callers(gpu: Any) -> None:
    def work(_: int) -> list[Any]:
        nccl = ctypes.CDLL("libnccl.so.2")
        unique = ctypes.create_string_buffer(128)
        assert nccl.ncclGetUniqueId(unique) == 0
        unique_id = type(
            "UniqueId", (ctypes.Structure,), {"_fields_": [("b", ctypes.c_char * 128)]}
        )
        found: list[Any] = [None] * 2

        def of(rank: int) -> None:
            gpu.choose(rank)
            assert gpu.cuda is not None  # makes the context current
            comm = ctypes.c_void_p()
            made = unique_id.from_buffer_copy(unique.raw)
            assert nccl.ncclCommInitRank(ctypes.byref(comm), 2, made, rank) == 0
            gpu.choose(5)  # the communicator's GPU counts
            assert gpu.cuda is not None
            op = collops.Operation(
                collops.ReduceScatterVParam(
                    rank=-1, rank_size=0, backend="nccl", hccl_comm=comm.value
                )
            )
            gpu.choose(rank)
            found[rank] = scatter(op, gpu, rank, SIZES, "float32")
            del op
            assert nccl.ncclCommDestroy(comm) == 0

        threads = [threading.Thread(target=of, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    [found] = run_ranks(work, 1)
    for rank, got in enumerate(found):
        np.testing.assert_array_equal(got, scattered(rank, SIZES, "float32", "sum"))
