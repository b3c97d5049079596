"""Backend cuda: many calls of all kinds in a row, with delays of streams and ranks, bit for bit."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from tests.gpu.cuda.cuda_ranks import (
    EVERYWHERE,
    PROCESSES_ON_ONE,
    communicator,
    fields,
    results,
)
from tests.gpu.gpu_ranks import Call, Gather, Scatter

DTYPES = ["float32", "float16", "uint8", "float64", "int32"]


def drawn(draw: random.Random, ranks: int) -> list[int]:
    """Elements of each rank; one of them has some."""
    sizes = [draw.choice([0, 1, 7, 1024, 1025, 2047, 4097, 9001]) for _ in range(ranks)]
    sizes[draw.randrange(ranks)] += 1
    return sizes


@pytest.mark.parametrize("where", EVERYWHERE)
def test_many_calls(gpu: Any, where: str) -> None:
    """Up to 4 calls are on a rank's two streams before anyone looks at a result, and x is
    overwritten behind the call that reads it."""
    ranks = 3

    def work(rank: int) -> None:
        draw, own = random.Random(5), random.Random(rank)
        communicator(gpu, rank, ranks, where, "many")
        streams = [gpu.stream(), gpu.stream()]
        for step in range(12):
            calls: list[tuple[Call, Any]] = []
            for _ in range(draw.randint(1, 4)):
                kind = draw.choice([Gather, Scatter])
                sizes, dtype = drawn(draw, ranks), draw.choice(DTYPES)
                call = kind(gpu, rank, sizes, dtype, **fields(where, "many"))
                call.write(step)
                calls.append((call, draw.choice(streams)))
            for call, stream in calls:
                if own.random() < 0.3:
                    time.sleep(own.random() * 0.01)
                call.execute(stream)
                call.spoil(stream)
            for call, stream in calls:
                call.check(step, stream)

    results(where, ranks, work, COLLOPS_SIM_DELAY_US="1500")


def test_short_calls_back_to_back(gpu: Any) -> None:
    """50 calls are on a stream before anyone looks at a result."""
    where = PROCESSES_ON_ONE

    def work(rank: int) -> None:
        communicator(gpu, rank, 3, where, "short")
        stream = gpu.stream()
        sizes = [2000, 1, 2048]
        calls = [Gather(gpu, rank, sizes, "float32", **fields(where, "short")) for _ in range(5)]
        for step, call in enumerate(calls):
            call.write(step)
        for _ in range(10):
            for call in calls:
                call.execute(stream)
        for step, call in enumerate(calls):
            call.check(step, stream)

    results(where, 3, work, COLLOPS_SIM_DELAY_US="0")
