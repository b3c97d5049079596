"""Collectives on collops.CudaArray: results are CudaArrays, also where torch and CuPy are not."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import collops
from collops.testing import run_ranks
from tests.gpu.gpu_ranks import BACKENDS, begins, numbers, reduced, start

SIZES = [900, 7, 60]
WIDTH = 8


def rows(rank: int, count: int, seed: int, dtype: str = "float32") -> Any:
    return numbers(rank, count * WIDTH, dtype, seed).reshape(count, WIDTH)


def column(rank: int, seed: int) -> Any:
    return numbers(rank, sum(SIZES), "float32", seed).reshape(-1, 1)


def on_gpu(array: Any, device: int | None = None) -> collops.CudaArray:
    made = collops.cuda_empty(array.shape, array.dtype, device)
    made.write(array)
    return made


def poisoned(shape: tuple[int, ...], like: collops.CudaArray) -> collops.CudaArray:
    made = collops.cuda_empty(shape, like.dtype, like.device)
    made.write(np.full(made.nbytes, 0xA5, np.uint8).view(like.dtype).reshape(shape))
    return made


@BACKENDS
def test_both_phases(gpu: Any, backend: str) -> None:
    """forward() makes outputs and workspace; execute() takes a stream."""
    counts, displs = np.array(SIZES, np.int64), begins(SIZES)

    def work(rank: int) -> list[Any]:
        gpu.choose(rank)
        stream = gpu.stream()
        op = collops.Operation(
            collops.ReduceScatterVParam(
                rank=rank, rank_size=len(SIZES), backend=backend, comm_domain="phases"
            )
        )
        y, found = np.empty(SIZES[rank], np.float16), []
        for turn in range(2):
            whole = on_gpu(column(rank, turn))
            inputs = [whole, counts, displs, counts[rank : rank + 1], y]
            [out] = op.forward(inputs)
            assert type(out) is collops.CudaArray
            found.append(out.read())
            out = poisoned(out.shape, out)
            size = op.get_workspace_size(inputs, [out])
            op.execute(inputs, [out], collops.cuda_empty(size, np.uint8), stream=stream)
            del whole, inputs
            found.append(out.read())  # follows the call, which was on another stream
        return found

    for rank, found in enumerate(run_ranks(work, 3)):
        begin = begins(SIZES)[rank]
        own = slice(begin, begin + SIZES[rank])
        for turn in range(2):
            expected = reduced([column(r, turn)[own] for r in range(3)], "sum")
            np.testing.assert_array_equal(found[2 * turn], expected)
            np.testing.assert_array_equal(found[2 * turn + 1], expected)


def test_a_result_for_another_library(gpu: Any) -> None:
    """What is known by __dlpack__ alone gets CudaArrays."""

    def work(rank: int) -> Any:
        comm = start(gpu, "nccl", rank, 3)
        result = comm.reduce_scatterv(gpu.tensor(rows(rank, sum(SIZES), 0)), SIZES)
        assert type(result) is collops.CudaArray
        return result.read()

    for rank, found in enumerate(run_ranks(work, 3)):
        begin = begins(SIZES)[rank]
        own = slice(begin, begin + SIZES[rank])
        expected = reduced([rows(r, sum(SIZES), 0)[own] for r in range(3)], "sum")
        np.testing.assert_array_equal(found, expected)


def test_memory_of_a_communicator(gpu: Any) -> None:
    def work(rank: int) -> Any:
        comm = start(gpu, "cuda", rank, 3)
        comm.barrier()
        gpu.choose(5)
        found = [comm.empty((2, 3), "bfloat16", device=name) for name in ("cuda", "cuda:7")]
        assert [type(one) for one in found] == [collops.CudaArray] * 2
        comm.close()
        assert found[0].read().shape == (2, 3)
        return [(one.device, one.shape, one.dtype.name) for one in found]

    for rank, found in enumerate(run_ranks(work, 3)):
        assert found == [(device, (2, 3), "bfloat16") for device in (rank, 7)]


def test_a_rank_makes_arrays_while_the_others_kernels_wait(gpu: Any) -> None:
    """Both are threads on one GPU; the simulation finds memory that is taken or freed meanwhile."""
    counts = np.array([4000, 4000], np.int64)

    def work(rank: int) -> Any:
        gpu.choose(0)
        stream = gpu.stream()
        op = collops.Operation(
            collops.AllGatherVParam(
                rank=rank, rank_size=2, backend="cuda", comm_domain="threads",
                comm_mode=collops.CommMode.COMM_MULTI_THREAD,
            )
        )  # fmt: skip
        y, found = np.empty(8000, np.float16), []
        for turn in range(6):
            if rank == turn % 2:
                time.sleep(0.2)  # the other one's kernel waits
            x = on_gpu(numbers(rank, 4000, "float32", turn), 0)
            out = poisoned((8000,), x)
            inputs = [x, counts[:1], counts, begins([4000, 4000]), y]
            size = op.get_workspace_size(inputs, [out])
            assert size == 0
            op.execute(inputs, [out], None, stream=stream)
            del x, inputs
            found.append(out)
        assert gpu.mistakes() == 0
        return [out.read(stream=stream) for out in found]

    for found in run_ranks(work, 2, threads=True):
        for turn, gathered in enumerate(found):
            expected = np.concatenate([numbers(r, 4000, "float32", turn) for r in range(2)])
            np.testing.assert_array_equal(gathered, expected)
