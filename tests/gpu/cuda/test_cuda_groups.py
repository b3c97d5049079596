"""Backend cuda: subgroups, communicators one after another, and which ranks can be in a group."""

from __future__ import annotations

import threading
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
from tests.gpu.gpu_ranks import Gather, Scatter, Word, numbers, reduced

SIZES = [3000, 0, 17, 900]


@pytest.mark.parametrize("where", [PROCESSES, THREADS])
def test_halves_between_calls_of_the_whole(gpu: Any, where: str) -> None:
    """The halves' ranks are numbered backwards."""

    def work(rank: int) -> None:
        comm = communicator(gpu, rank, 4, where, "whole")
        half = comm.split(rank % 2, -rank)
        others = [r for r in (3, 2, 1, 0) if r % 2 == rank % 2]
        for turn in range(3):
            x = gpu.tensor(numbers(rank, 4000, "float32", turn))
            ours, all_of_us = gpu.poisoned((4000,), x), gpu.poisoned((4000,), x)
            half.all_reduce(x, out=ours)
            comm.all_reduce(x, out=all_of_us)
            gathered = gpu.poisoned((8000,), x)
            half.all_gatherv(x, [4000, 4000], out=gathered)
            parts = [numbers(r, 4000, "float32", turn) for r in range(4)]
            mine = [parts[r] for r in others]
            np.testing.assert_array_equal(gpu.array(ours), reduced(mine, "sum"))
            np.testing.assert_array_equal(gpu.array(all_of_us), reduced(parts, "sum"))
            np.testing.assert_array_equal(gpu.array(gathered), np.concatenate(mine))

    results(where, 4, work)


@pytest.mark.parametrize("where", [PROCESSES, THREADS_ON_ONE])
def test_communicators_one_after_another(gpu: Any, where: str) -> None:
    """Each takes memory that an earlier one has left, also one whose ranks disagreed."""

    def work(rank: int) -> None:
        choose(gpu, rank, where)
        stream = gpu.stream()
        for turn in range(5):
            comm = communicator(gpu, rank, 4, where, "again")
            for kind in (Gather, Scatter):
                call = kind(gpu, rank, SIZES, "float32", **fields(where, "again"))
                call.write(turn)
                call.execute(stream)
                call.check(turn, stream)
            if turn == 2:
                sizes = [*SIZES[:3], 900 + (rank == 3)]
                Gather(gpu, rank, sizes, "float32", **fields(where, "again")).execute(stream)
                stream.synchronize()
                with pytest.raises(collops.RankMismatchError, match="900"):
                    comm.check()
            comm.close()

    results(where, 4, work)


def test_two_ranks_on_each_gpu(gpu: Any) -> None:
    def work(rank: int) -> None:
        gpu.choose(rank // 2)
        stream = gpu.stream()
        for kind in (Gather, Scatter):
            call = kind(gpu, rank, SIZES, "float32", **fields(PROCESSES, "shared"))
            for step in range(3):
                call.write(step)
                call.execute(stream)
                call.check(step, stream)

    run_ranks(work, 4)


@pytest.mark.parametrize("where", [PROCESSES, THREADS])
def test_two_gpus_that_cannot_address_each_other_are_named(gpu: Any, where: str) -> None:
    """The ranks that could address all others have the message as well."""

    def work(rank: int) -> str:
        with pytest.raises(collops.Error) as error:
            communicator(gpu, rank, 3, where, "apart").barrier()
        return str(error.value)

    for text in results(where, 3, work, COLLOPS_SIM_NO_PEERS="0-2"):
        assert "rank 0" in text and "rank 2" in text
        assert "GPU 0" in text and "GPU 2" in text
        assert "cannot address" in text or "peer access is not supported" in text
        assert "use nccl" in text


def test_a_group_on_gpus_that_can_is_made_where_others_cannot(gpu: Any) -> None:
    def work(rank: int) -> None:
        gpu.choose([0, 1, 3][rank])
        call = Gather(gpu, rank, [5, 0, 3000], "float32", **fields(PROCESSES, "able"))
        stream = gpu.stream()
        call.execute(stream)
        call.check(0, stream)

    run_ranks(work, 3, env={"COLLOPS_SIM_NO_PEERS": "0-2,2-1"})


def test_a_group_that_was_left_in_the_middle_is_made_again(gpu: Any) -> None:
    """Rank 1's kernel waits for rank 0, which closes; both then make another group."""

    def work(rank: int) -> None:
        gpu.choose(rank)
        stream = gpu.stream()
        for turn in range(2):
            comm = collops.init(rank, 2, backend="cuda", comm_domain="left", timeout_s=patience(60))
            call = Gather(gpu, rank, [9000, 5], "float32", **fields(PROCESSES, "left"))
            call.write(turn)
            call.execute(stream)
            call.check(turn, stream)
            if turn == 0 and rank == 1:
                with pytest.raises(collops.PeerLostError):  # at once, if rank 0 has closed already
                    call.execute(stream)
                    stream.synchronize()  # the watcher aborts
                    comm.check()
            del call
            comm.close()
            if turn == 0 and rank == 0:
                time.sleep(0.5)

    run_ranks(work, 2)


def test_a_kernel_of_a_failed_group_comes_late(gpu: Any) -> None:
    """It tells rank 0 its terms, where a later group may have its own by then. The cells of even
    and odd steps differ, and the number of the first step is drawn: one turn may show nothing."""
    held, failed, stale = Word(), Word(), Word()

    def group(rank: int, name: str) -> tuple[Any, Gather]:
        comm = collops.init(rank, 2, backend="cuda", comm_domain=name, timeout_s=patience(10))
        return comm, Gather(gpu, rank, [900, 5], "float32", **fields(PROCESSES, name))

    def work(rank: int) -> None:
        gpu.choose(rank)
        stream, late = gpu.stream(), gpu.stream()
        for turn in range(3):
            comm, call = group(rank, f"fails {turn}")
            call.execute(stream)
            stream.synchronize()
            with gpu.held(late):
                if rank == 1:
                    call.execute(late)
                    held.say()
                    failed.hear()
                else:
                    held.hear()
                    comm.abort("the test ends it")
                    failed.say()
                comm.close()
                comm, call = group(rank, f"lasts {turn}")
                call.execute(stream)
                call.check(0, stream)
                call.write(1)
                if rank == 1:
                    call.execute(stream)  # tells rank 0 its terms
                    while gpu.cuda.waiting_kernels() == 0:
                        time.sleep(0.001)
            if rank == 1:
                late.synchronize()
                stale.say()
            else:
                stale.hear()
                call.execute(stream)
            call.check(1, stream)
            comm.close()

    run_ranks(work, 2)


def test_a_split_while_a_kernel_waits(gpu: Any) -> None:
    """First contact of the subgroup takes memory, and rank 0's kernel waits for rank 1 then."""

    def work(rank: int) -> Any:
        comm, stream = communicator(gpu, rank, 2, PROCESSES, "whole"), gpu.stream()
        call = Gather(gpu, rank, [4000, 4000], "float32", **fields(PROCESSES, "whole"))
        sub = comm.split(0, rank)
        x = gpu.tensor(numbers(rank, 4000, "float32"))
        total = gpu.poisoned((4000,), x)
        held = threading.Event()

        def hold() -> None:
            with gpu.held(stream):
                held.set()
                time.sleep(1)

        if rank == 1:
            threading.Thread(target=hold).start()
            held.wait(patience(60))
        call.execute(stream)
        sub.all_reduce(x, out=total)
        call.check(0, stream)
        return gpu.array(total)

    parts = [numbers(rank, 4000, "float32") for rank in range(2)]
    for total in run_ranks(work, 2):
        np.testing.assert_array_equal(total, reduced(parts, "sum"))
