"""Calls on streams of the caller's: several streams, threads with streams of their own, and ranks
that leave when their part is done."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from tests.gpu.gpu_ranks import BACKENDS, Scatter, gather, start
from tests.gpu.simulated.simulated_driver import PER_THREAD

SIZES = [3, 5]


@BACKENDS
def test_calls_on_two_streams_keep_apart(gpu: Any, backend: str) -> None:
    def work(rank: int) -> None:
        gpu.choose(rank)
        fields = {"backend": backend, "comm_domain": "two"}
        calls = [Scatter(gpu, rank, SIZES, dtype, **fields) for dtype in ("float32", "float16")]
        streams = [gpu.stream(), gpu.stream()]
        for _ in range(4):
            for call, stream in zip(calls, streams, strict=True):
                call.execute(stream)
        for call, stream in zip(calls, streams, strict=True):
            call.check(0, stream)

    run_ranks(work, 2, env={"COLLOPS_SIM_DELAY_US": "3000"})


@BACKENDS
def test_streams_with_one_handle_keep_apart(gpu: Any, backend: str) -> None:
    """The handle of a thread's own stream is the same in every thread."""

    def work(rank: int) -> None:
        gpu.choose(rank)
        call = Scatter(gpu, rank, SIZES, "float32", backend=backend, comm_domain="own")

        def on_own_stream() -> None:
            gpu.choose(rank)
            call.execute(PER_THREAD)

        call.write(1)
        call.execute(stream := gpu.stream())
        call.check(1, stream)
        for _ in range(8):
            thread = threading.Thread(target=on_own_stream)
            thread.start()
            thread.join()
        call.execute(stream)
        call.check(1, stream)

    run_ranks(work, 2, env={"COLLOPS_SIM_DELAY_US": "20000"})


@BACKENDS
def test_a_rank_without_a_slice_leaves_before_a_late_rank_has_called(
    gpu: Any, backend: str
) -> None:
    """Ranks 1 and 2 have nothing for each other, so rank 2's part is soon done."""

    def work(rank: int) -> None:
        gpu.choose(rank)
        call = Scatter(gpu, rank, [4, 0, 0], "float32", backend=backend, comm_domain="first")
        stream = gpu.stream()
        call.execute(stream)
        call.check(0, stream)
        if rank == 1:
            time.sleep(1)
        call.write(1)
        call.execute(stream)
        call.check(1, stream)

    run_ranks(work, 3)


@BACKENDS
def test_a_rank_that_leaves_without_a_call_is_missed_in_it(gpu: Any, backend: str) -> None:
    def work(rank: int) -> float:
        comm = start(gpu, backend, rank, 2)
        gather(comm, gpu, rank)
        if rank == 1:
            return 0
        gpu.cuda.call("cuCtxSynchronize")
        begin = time.monotonic()
        with pytest.raises(collops.PeerLostError, match="rank 1 .*has left"):
            gather(comm, gpu, rank)
            gpu.cuda.call("cuCtxSynchronize")
            comm.barrier()
        return time.monotonic() - begin

    assert run_ranks(work, 2)[0] < 30


@BACKENDS
def test_a_rank_leaves_while_its_peers_streams_are_slow(gpu: Any, backend: str) -> None:
    """It stays until its own part is done, and takes nothing away then."""
    sizes = [3000, 5, 9000]

    def work(rank: int) -> None:
        gpu.choose(rank)
        call = Scatter(gpu, rank, sizes, "float32", backend=backend, comm_domain="slow")
        stream = gpu.stream()
        call.execute(stream)
        if rank == 0:
            with gpu.held(stream):
                call.execute(stream)
                time.sleep(0.5)
        else:
            call.execute(stream)
        if rank != 2:
            call.check(0, stream)

    run_ranks(work, 3)


def test_a_group_of_nccl_is_split(gpu: Any) -> None:
    def work(rank: int) -> Any:
        comm = start(gpu, "nccl", rank, 4)
        comm.barrier()
        part = comm.split(rank % 2, -rank)  # in reverse order
        x = gpu.tensor(np.array([rank], np.int32))
        out = gpu.poisoned((2,), x)
        part.all_gatherv(x, [1, 1], out=out)
        return part.rank, gpu.array(out).tolist()

    expected = [(1, [2, 0]), (1, [3, 1]), (0, [2, 0]), (0, [3, 1])]
    assert run_ranks(work, 4) == expected
