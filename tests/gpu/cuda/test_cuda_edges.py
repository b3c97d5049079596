"""Backend cuda: uneven counts, lengths about what a cell holds, types, and odd addresses."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.gpu.cuda.cuda_ranks import (
    EVERYWHERE,
    PROCESSES,
    PROCESSES_ON_ONE,
    THREADS,
    communicator,
    fields,
    results,
)
from tests.gpu.gpu_ranks import Gather, Scatter, numbers

# What kernels/cuda/peers/region.h calls kInlineBytes: what a cell holds.
CELL = 8192

# Type, elements of each rank, and how far x and the output lie behind an aligned address.
SHAPES: list[tuple[str, list[int], tuple[int, int]]] = [
    ("uint8", [CELL - 1, CELL, CELL + 1], (0, 0)),
    ("uint8", [CELL + 1, CELL - 1, CELL], (1, 3)),
    ("int8", [1, 0, 2], (5, 0)),
    ("int8", [13, 16, 17], (0, 15)),
    ("uint8", [50_003, 0, 5], (3, 3)),
    ("uint8", [0, 0, 50_001], (0, 9)),
    ("float16", [CELL // 2, CELL // 2 + 1, 0], (1, 0)),
    ("int16", [0, CELL // 2 - 1, 20_001], (7, 2)),
    ("float32", [CELL // 4 + 1, CELL // 4 - 1, CELL // 4], (0, 1)),
    ("float32", [0, 20_000, 0], (3, 3)),
    ("int32", [20_001, 0, 0], (1, 2)),
    ("float64", [CELL // 8 - 1, CELL // 8, CELL // 8 + 1], (1, 1)),
    ("int64", [0, 3, 1], (0, 1)),
]


@pytest.mark.parametrize("where", EVERYWHERE)
def test_counts_types_and_addresses(gpu: Any, where: str) -> None:
    def work(rank: int) -> None:
        communicator(gpu, rank, 3, where, "edges")
        stream = gpu.stream()
        for dtype, sizes, shifts in SHAPES:
            for kind in (Gather, Scatter):
                call = kind(gpu, rank, sizes, dtype, shifts, **fields(where, "edges"))
                for step in range(2):  # cells of odd and of even steps
                    call.write(step)
                    call.execute(stream)
                    call.check(step, stream)

    results(where, 3, work)


@pytest.mark.parametrize("count", [CELL // 8, CELL // 4 - 1, CELL // 4, CELL // 4 + 1])
def test_a_rank_that_is_alone(gpu: Any, count: int) -> None:
    def work(rank: int) -> None:
        comm = communicator(gpu, rank, 1, PROCESSES, "alone")
        x = gpu.tensor(numbers(rank, count, "float32"))
        calls = {
            "all_gatherv": lambda out: comm.all_gatherv(x, [count], out=out),
            "reduce_scatterv": lambda out: comm.reduce_scatterv(x, [count], out=out),
            "all_reduce": lambda out: comm.all_reduce(x, out=out),
        }
        for name, call in calls.items():
            out = gpu.poisoned((count,), x)
            call(out)
            wanted = numbers(rank, count, "float32")
            np.testing.assert_array_equal(gpu.array(out), wanted, err_msg=name)

    results(PROCESSES, 1, work)


def test_pieces_take_several_rounds(gpu: Any) -> None:
    """A slot is used more than twice, so its sender waits until it was taken."""

    def work(rank: int) -> None:
        communicator(gpu, rank, 3, PROCESSES_ON_ONE, "rounds")
        have = fields(PROCESSES_ON_ONE, "rounds")
        stream = gpu.stream()
        calls = [
            Gather(gpu, rank, [500_001, 3, 270_000], "float32", **have),
            Scatter(gpu, rank, [220_001, 7, 90_000], "float32", (1, 0), **have),
        ]
        for step in range(2):
            for call in calls:
                call.write(step)
                call.execute(stream)
            for call in calls:
                call.check(step, stream)

    results(PROCESSES_ON_ONE, 3, work, COLLOPS_SIM_DELAY_US="2000")


@pytest.mark.parametrize("where", [PROCESSES, THREADS])
def test_messages_about_as_long_as_a_cell(gpu: Any, where: str) -> None:
    """Each pair of ranks has another length, so a call has short and long ones."""
    sends = [[0, CELL - 1, CELL], [CELL + 1, 0, 40 * CELL + 3], [2 * CELL, CELL + 2, 0]]

    def rows(source: int, target: int) -> Any:
        return numbers(source, sends[source][target], "uint8", target)

    def work(rank: int) -> Any:
        comm = communicator(gpu, rank, 3, where, "pairs")
        found = None
        for _ in range(2):
            x = gpu.tensor(np.concatenate([rows(rank, target) for target in range(3)]), shift=1)
            receives = [row[rank] for row in sends]
            out = gpu.poisoned((sum(receives),), x, 2)
            comm.all_to_allv(x, sends[rank], receives, out=out)
            found = gpu.array(out)
        return found

    for rank, found in enumerate(results(where, 3, work)):
        expected = np.concatenate([rows(source, rank) for source in range(3)])
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("count", [CELL // 4, CELL // 4 + 1])
def test_all_reduce_in_place_about_as_long_as_a_cell(gpu: Any, count: int) -> None:
    """What fits goes to every rank in one kernel, and more in two."""

    def work(rank: int) -> Any:
        comm = communicator(gpu, rank, 3, PROCESSES, "all")
        x = gpu.tensor(numbers(rank, count, "float32"), shift=1)
        comm.all_reduce(x, out=x)
        return gpu.array(x)

    expected = numbers(0, count, "float32")
    for rank in (1, 2):
        expected = expected + numbers(rank, count, "float32")
    for found in results(PROCESSES, 3, work):
        np.testing.assert_array_equal(found, expected)


def test_c_takes_memory_of_the_cpu_alone(gpu: Any) -> None:
    def work(rank: int) -> tuple[int, str]:
        comm = communicator(gpu, rank, 2, PROCESSES, "c")
        lib, x = ctypes.CDLL("libcollops_c.so"), (ctypes.c_float * 1)()
        lib.collops_last_error.restype = ctypes.c_char_p
        one, float32, of_sum = ctypes.c_int64(1), 0, 0
        error = lib.collops_all_reduce(ctypes.c_void_p(comm.handle), x, x, one, float32, of_sum)
        return error, lib.collops_last_error().decode()

    text = "all_reduce: C moves memory of the CPU, and this communicator moves that of cuda:"
    found = results(PROCESSES, 2, work)
    assert [(error, said.startswith(text)) for error, said in found] == [(103, True)] * 2
