"""Calls on streams: lost and late ranks end them; refusals; ranks that disagree."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import RankErrors, run_ranks
from patience import patience
from tests.gpu.gpu_ranks import BACKENDS, Gather, gather, numbers, start, until_ended


@BACKENDS
@pytest.mark.parametrize("function", ["cuEventQuery", "cuEventRecord"])
def test_the_time_out_holds_while_the_driver_waits_for_the_gpu(
    gpu: Any, backend: str, function: str
) -> None:
    """Where the watcher asks it, and in a call, which then holds the engine."""

    def work(rank: int) -> str:
        comm = start(gpu, backend, rank, 2)
        gather(comm, gpu, rank)
        gpu.cuda.call("cuCtxSynchronize")
        if rank == 1:
            return until_ended(comm).name
        comm.timeout_s = 2
        gpu.cuda.block(function)
        begin = time.monotonic()
        gather(comm, gpu, rank)
        gpu.cuda.call("cuCtxSynchronize")  # the watcher aborts
        with pytest.raises(collops.Error) as error:
            comm.check()
        assert time.monotonic() - begin < patience(20)
        return error.value.name

    assert run_ranks(work, 2) == ["ERROR_TIMEOUT"] * 2


@BACKENDS
def test_a_communicator_whose_gpu_does_not_answer_delays_no_other(gpu: Any, backend: str) -> None:
    """Rank 1 makes no second call in either; the first has time, and GPU 0 is not asked in vain."""

    def work(rank: int) -> str:
        slow = start(gpu, backend, rank, 2, "slow")
        gather(slow, gpu, rank)
        gpu.choose(2 + rank)
        good = collops.init(rank, 2, backend=backend, comm_domain="good", timeout_s=patience(60))
        gather(good, gpu, rank)
        gpu.cuda.call("cuCtxSynchronize")
        if rank == 1:
            return until_ended(good).name + until_ended(slow).name
        good.timeout_s = 2
        begin = time.monotonic()
        gpu.choose(0)
        gather(slow, gpu, rank)
        gpu.cuda.block("cuEventQuery")
        time.sleep(1)  # the watcher has asked
        gpu.choose(2)
        gather(good, gpu, rank)
        gpu.cuda.call("cuCtxSynchronize")
        with pytest.raises(collops.Error) as error:
            good.check()
        assert time.monotonic() - begin < patience(20)
        slow.abort("the test is over")
        return error.value.name

    assert run_ranks(work, 2)[0] == "ERROR_TIMEOUT"


@BACKENDS
def test_a_rank_that_dies_ends_the_calls_of_the_others(gpu: Any, backend: str) -> None:
    """They wait on their streams, where they would stay for ever."""

    def work(rank: int) -> None:
        comm = start(gpu, backend, rank, 3)
        gather(comm, gpu, rank)
        gpu.cuda.call("cuCtxSynchronize")
        begin = time.monotonic()
        if rank == 2:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(collops.PeerLostError, match="rank 2"):  # at once, if it is dead already
            gather(comm, gpu, rank)
            gpu.cuda.call("cuCtxSynchronize")  # the watcher aborts
            comm.barrier()
        assert time.monotonic() - begin < patience(30)

    with pytest.raises(RankErrors) as errors:
        run_ranks(work, 3)
    assert list(errors.value.errors) == [2]


@BACKENDS
def test_ranks_that_disagree_are_named_with_check(gpu: Any, backend: str) -> None:
    def work(rank: int) -> str:
        comm = start(gpu, backend, rank, 2)
        with pytest.raises(collops.RankMismatchError) as error:
            gather(comm, gpu, rank, [3, 3] if rank else [3, 4])
        return str(error.value)

    for text in run_ranks(work, 2, env={"COLLOPS_CHECK": "1"}):
        assert "sizes[1]" in text and "4" in text and "3" in text


@BACKENDS
def test_without_check_a_refusal_ends_the_group(gpu: Any, backend: str) -> None:
    def work(rank: int) -> str:
        comm = start(gpu, backend, rank, 2)
        comm.barrier()
        if rank == 1:
            with pytest.raises(collops.ArgumentError):
                gather(comm, gpu, rank, [3, 4])
            return ""
        with pytest.raises(collops.Error) as error:  # by this call, if it comes after the refusal
            gather(comm, gpu, rank)
            gpu.cuda.call("cuCtxSynchronize")  # the watcher aborts
            comm.barrier()
        return str(error.value)

    assert "sizes[1] is 4" in run_ranks(work, 2)[0]


@BACKENDS
def test_with_check_a_refusal_leaves_the_group_good(gpu: Any, backend: str) -> None:
    def work(rank: int) -> tuple[str, Any]:
        comm = start(gpu, backend, rank, 2)
        with pytest.raises(collops.Error) as error:
            gather(comm, gpu, rank, [3, 4] if rank == 1 else [3, 3])
        return str(error.value), gpu.array(gather(comm, gpu, rank))

    for text, found in run_ranks(work, 2, env={"COLLOPS_CHECK": "1"}):
        assert "sizes[1] is 4" in text
        expected = np.concatenate([numbers(rank, 3, "float32") for rank in range(2)])
        np.testing.assert_array_equal(found, expected)


@BACKENDS
def test_a_tensor_of_another_gpu_names_both(gpu: Any, backend: str) -> None:
    def work(rank: int) -> str:
        comm = start(gpu, backend, rank, 2)
        comm.barrier()
        gpu.choose(3)
        x = gpu.tensor(np.ones(3, np.float32))
        gpu.choose(rank)
        with pytest.raises(collops.Error) as error:
            comm.all_gatherv(x, [3, 3], out=gpu.poisoned((6,), x))
        return str(error.value)

    for rank, text in enumerate(run_ranks(work, 2)):
        assert "cuda:3" in text and f"cuda:{rank}" in text


@BACKENDS
def test_check_waits_for_nothing(gpu: Any, backend: str) -> None:
    """Neither for first contact, nor for a call that has not ended, nor for a rank that left."""

    def work(rank: int) -> None:
        comm = start(gpu, backend, rank, 2)
        if rank == 0:
            comm.check()
        stream = gpu.stream()
        comm.barrier()
        if rank == 1:
            gather(comm, gpu, rank)
            return
        with gpu.held(stream):
            comm.check()
        out = gather(comm, gpu, rank)
        comm.check()
        gpu.array(out)
        time.sleep(0.5)  # rank 1 may leave
        comm.check()

    run_ranks(work, 2)


@BACKENDS
def test_kernels_that_the_driver_cannot_read_name_both_versions(gpu: Any, backend: str) -> None:
    def work(rank: int) -> str:
        os.environ |= {"COLLOPS_SIM_FAIL": "cuModuleLoadData:1:222", "COLLOPS_SIM_DRIVER": "12040"}
        with pytest.raises(collops.Error) as error:
            start(gpu, backend, rank, 2)
        return str(error.value)

    # Without an nvcc the kernels are stand-ins.
    said = (
        r"the GPU kernels(, compiled by nvcc \d+\.\d+,)? are not taken by the driver of CUDA 12\.4"
    )
    for text in run_ranks(work, 2):
        assert re.search(f"{said}: cuModuleLoadData", text)


@BACKENDS
def test_a_replay_ends_when_a_rank_dies(gpu: Any, backend: str) -> None:
    """No event of ours lies behind a replay, so it is not known whether one is under way. NCCL does
    not end its communicator as long as the graph exists, but close() does not wait for that."""

    def work(rank: int) -> None:
        comm, stream = start(gpu, backend, rank, 2), gpu.stream()
        call = Gather(gpu, rank, [3000] * 2, "float32", backend=backend, comm_domain="group")
        call.execute(stream)  # connects
        with gpu.captured(stream) as graph:
            call.execute(stream)
        graph.replay(stream)
        stream.synchronize()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        graph.replay(stream)
        stream.synchronize()  # the watcher aborts
        with pytest.raises(collops.PeerLostError, match="rank 1"):
            call.execute(stream)
        comm.close()
        graph.destroy()

    with pytest.raises(RankErrors) as errors:
        run_ranks(work, 2)
    assert list(errors.value.errors) == [1], errors.value
