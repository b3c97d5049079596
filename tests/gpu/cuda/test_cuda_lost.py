"""Backend cuda: lost and late ranks, aborts, and GPUs that fail end what others wait for."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import RankErrors, run_ranks
from patience import patience
from tests.gpu.cuda.cuda_ranks import (
    PROCESSES,
    PROCESSES_ON_ONE,
    THREADS_ON_ONE,
    communicator,
    fields,
    results,
)
from tests.gpu.gpu_ranks import Gather, Scatter, numbers, until_ended

# Long enough for data to go through the regions in pieces.
LONG = [300_000, 5, 200_000]


def connected(gpu: Any, rank: int, sizes: list[int], where: str, name: str) -> tuple[Any, ...]:
    """A rank's communicator, an AllGatherV that has run once, and its stream."""
    comm = communicator(gpu, rank, len(sizes), where, name)
    op, stream = Gather(gpu, rank, sizes, "float32", **fields(where, name)), gpu.stream()
    op.execute(stream)
    op.check(0, stream)
    return comm, op, stream


def ends(call: Any) -> float:
    """Seconds until it ends."""
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


def test_a_rank_that_dies_when_it_has_said_that_it_comes(gpu: Any) -> None:
    """Its kernel has begun, and the others wait for its data."""

    def work(rank: int) -> None:
        comm = communicator(gpu, rank, 3, PROCESSES, "dies")
        op = Gather(gpu, rank, LONG, "float32", **fields(PROCESSES, "dies"))
        stream = gpu.stream()
        comm.barrier()
        # At once, if it is dead already.
        with pytest.raises(collops.PeerLostError, match="AllGatherV.*rank 2"):
            with gpu.held(stream) if rank == 0 else gpu.held(gpu.stream()):
                op.execute(stream)
                time.sleep(0.5)
                if rank == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(0.5)
            assert ends(stream.synchronize) < 30
            comm.check()
        with pytest.raises(collops.PeerLostError, match="AllGatherV.*rank 2"):
            comm.barrier()

    with pytest.raises(RankErrors) as errors:
        run_ranks(work, 3)
    assert list(errors.value.errors) == [2]


@pytest.mark.parametrize("where", [PROCESSES_ON_ONE, THREADS_ON_ONE])
def test_a_late_rank_is_waited_for(gpu: Any, where: str) -> None:
    """Also for longer than the watcher looks, and than a kernel looks without a pause."""

    def work(rank: int) -> None:
        comm = communicator(gpu, rank, 2, where, "late")
        op = Scatter(gpu, rank, [3, 60_000], "float32", **fields(where, "late"))
        stream = gpu.stream()
        for turn in range(2):
            op.write(turn)
            if rank == turn:
                time.sleep(0.7)
            op.execute(stream)
            op.check(turn, stream)
        comm.check()

    results(where, 2, work)


@pytest.mark.parametrize("where", [PROCESSES, THREADS_ON_ONE])
def test_an_abort_ends_the_kernels_of_all(gpu: Any, where: str) -> None:
    def work(rank: int) -> str:
        comm, op, stream = connected(gpu, rank, LONG, where, "abort")
        if rank == 1:  # waits for nobody
            time.sleep(0.5)
            comm.abort("the user has pressed a button")
        with pytest.raises(collops.AbortedError) as error:
            if rank != 1:
                op.execute(stream)
            assert ends(stream.synchronize) < 30
            comm.check()
        return str(error.value)

    for text in results(where, 3, work):
        assert "pressed a button" in text


@pytest.mark.parametrize("fault", ["run.collops_move:2:700", "cuLaunchKernel:2:719"])
def test_a_gpu_that_fails_ends_the_group_with_its_text(gpu: Any, fault: str) -> None:
    """The second call: a kernel that fails when it runs, or cannot be launched."""

    def work(rank: int) -> str:
        if rank == 1:
            os.environ["COLLOPS_SIM_FAIL"] = fault
        comm = communicator(gpu, rank, 2, PROCESSES, "fault")
        x = gpu.tensor(numbers(rank, 3, "float32"))
        out = gpu.poisoned((6,), x)
        comm.all_gatherv(x, [3, 3], out=out)
        gpu.cuda.call("cuCtxSynchronize")
        with pytest.raises(collops.Error) as error:
            comm.all_gatherv(x, [3, 3], out=out)
            if rank == 0:
                gpu.cuda.call("cuCtxSynchronize")  # the watcher aborts
            time.sleep(0.3)
            comm.barrier()
        return str(error.value)

    texts = run_ranks(work, 2)
    assert "CUDA_ERROR" in texts[1], texts[1]
    assert "CUDA_ERROR" in texts[0] and "rank 1" in texts[0], texts[0]


def test_a_refusal_reaches_kernels_that_wait(gpu: Any) -> None:
    """Nothing moves, and what all ranks raise has the message of the rank that has refused."""

    def work(rank: int) -> tuple[str, bool]:
        comm = communicator(gpu, rank, 3, PROCESSES, "refusal")
        comm.barrier()
        x = gpu.tensor(numbers(rank, 3, "float32"))
        out = gpu.poisoned((9,), x)
        before = gpu.array(out)
        if rank == 1:
            time.sleep(0.3)
            with pytest.raises(collops.ArgumentError):
                comm.all_gatherv(x, [3, 4, 3], out=gpu.poisoned((10,), x))
        with pytest.raises(collops.RankMismatchError) as error:
            if rank != 1:
                comm.all_gatherv(x, [3, 3, 3], out=out)
            assert ends(lambda: gpu.cuda.call("cuCtxSynchronize")) < 30
            comm.check()
        return str(error.value), bool(np.array_equal(gpu.array(out), before, equal_nan=True))

    for text, nothing_moved in run_ranks(work, 3):
        assert "rank 1 refused its part" in text and "sizes[1] is 4" in text
        assert nothing_moved


def test_calls_behind_one_that_waits_end_with_it(gpu: Any) -> None:
    """They are on the stream already, and move nothing."""

    def work(rank: int) -> bool:
        comm, op, stream = connected(gpu, rank, [9000, 3], PROCESSES, "behind")
        if rank == 1:
            return until_ended(comm).name == "ERROR_TIMEOUT"
        comm.timeout_s = 2
        op.write(1)
        for _ in range(5):
            op.execute(stream)
        assert ends(stream.synchronize) < 30
        with pytest.raises(collops.RankTimeoutError, match="AllGatherV"):
            comm.check()
        with pytest.raises(collops.RankTimeoutError):
            op.execute(stream)
        return bool(np.all(gpu.array(op.out)[9000:] == 77))

    assert run_ranks(work, 2) == [True, True]


def test_a_launch_that_waits_for_room_ends_with_the_calls_before_it(gpu: Any) -> None:
    """The driver makes the host wait when a stream is full, and rank 1 makes no second call."""

    def work(rank: int) -> None:
        comm, op, stream = connected(gpu, rank, [9000, 3], PROCESSES, "full")
        if rank == 1:
            assert until_ended(comm).name == "ERROR_TIMEOUT"
            return
        comm.timeout_s = 2
        begin = time.monotonic()
        with pytest.raises(collops.RankTimeoutError):
            for _ in range(8):
                op.execute(stream)
        assert time.monotonic() - begin < patience(30)

    env = {"COLLOPS_SIM_QUEUE": "6", "COLLOPS_SIM_TIMEOUT_S": f"{patience(40):g}"}
    run_ranks(work, 2, env=env)


def test_a_time_out_of_one_group_leaves_another_good(gpu: Any) -> None:
    """Two communicators of the same ranks; rank 1 makes no second call in the first."""

    def work(rank: int) -> None:
        bad, broken, stream_of_bad = connected(gpu, rank, [5, 3], PROCESSES, "bad")
        _, sound, stream = connected(gpu, rank, [9000, 3], PROCESSES, "good")
        if rank == 0:
            bad.timeout_s = 2
            broken.execute(stream_of_bad)
        done = threading.Event()
        for step in range(1, 6):
            sound.write(step)
            sound.execute(stream)
            sound.check(step, stream)
            done.wait(0.6)
        if rank == 0:
            stream_of_bad.synchronize()
        assert until_ended(bad).name == "ERROR_TIMEOUT"

    run_ranks(work, 2)
