"""Backend cuda, threads of one GPU: a long call is a gate and the data."""

from __future__ import annotations

import time
from typing import Any

import pytest

from patience import patience
from tests.gpu.cuda.cuda_ranks import THREADS_ON_ONE, communicator, fields, results
from tests.gpu.gpu_ranks import Call, Gather, Scatter

# More than 8 MiB for each rank, a message that fits into a cell among them.
SIZES = [1_200_000, 5, 1_000_003]


@pytest.mark.parametrize("kind", [Gather, Scatter])
@pytest.mark.parametrize("shifts", [(0, 0), (1, 2)])
def test_long_calls_between_short_ones_and_in_graphs(
    gpu: Any, kind: type[Call], shifts: tuple[int, int]
) -> None:
    def work(rank: int) -> None:
        communicator(gpu, rank, 3, THREADS_ON_ONE, "long")
        have = fields(THREADS_ON_ONE, "long")
        stream = gpu.stream()
        long = kind(gpu, rank, SIZES, "int32", shifts, **have)
        short = kind(gpu, rank, [7, 0, 300], "float32", **have)
        for step in range(2):
            long.write(step)
            for call in (short, long, short):
                call.execute(stream)
            long.spoil(stream)
            long.check(step, stream)
        with gpu.captured(stream) as graph:
            long.execute(stream)
            short.execute(stream)
        for step in range(2, 4):
            long.write(step)
            graph.replay(stream)
            long.check(step, stream)

    results(THREADS_ON_ONE, 3, work)


# Who sends a message of more than 256 bytes has a larger block: rank 1 or, to scatter, rank 2.
@pytest.mark.parametrize(
    ("kind", "length", "expected"),
    [(Gather, 5, 64), (Scatter, 5, 64), (Gather, 100, 32 + 512), (Scatter, 100, 32 + 512)],
)
def test_who_waits_for_a_late_rank_takes_one_block(
    gpu: Any, kind: type[Call], length: int, expected: int
) -> None:
    """So that what the late rank runs first, a product for example, has its place."""
    sizes = [SIZES[0], length, SIZES[2]]

    def work(rank: int) -> int:
        communicator(gpu, rank, 3, THREADS_ON_ONE, "late")
        call = kind(gpu, rank, sizes, "int32", **fields(THREADS_ON_ONE, "late"))
        stream = gpu.stream()
        call.execute(stream)  # connects
        call.check(0, stream)
        call.write(1)
        threads = 0
        if rank == 0:
            end = time.monotonic() + patience(60)
            while gpu.cuda.waiting_kernels() < 2 and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(0.2)
            threads = gpu.cuda.waiting_threads()
        call.execute(stream)
        call.check(1, stream)
        return threads

    assert results(THREADS_ON_ONE, 3, work)[0] == expected
