"""Backend nccl at the plain level: scratch memory of reductions comes from the library of x."""

from __future__ import annotations

import contextlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience
from tests.gpu.gpu_ranks import numbers, scattered

SIZES = [700, 500]


class Array:
    """What is read of a CuPy array, on a simulated GPU."""

    __module__ = "cupy"

    def __init__(self, tensor: Any) -> None:
        self.tensor, self.shape, self.dtype = tensor, tensor.shape, tensor.numpy_dtype
        self.ndim, self.size = len(self.shape), int(np.prod(self.shape))
        self.device = SimpleNamespace(id=tensor.device)
        self.flags = SimpleNamespace(c_contiguous=True)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()  # type: ignore[no-any-return]

    def __dlpack__(self, **arguments: Any) -> object:
        return self.tensor.__dlpack__(**arguments)  # type: ignore[no-any-return]


class Device:
    """cupy.cuda.Device as a context manager, of the one GPU that a rank uses."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __enter__(self) -> None:
        """Every rank stays on its GPU."""

    def __exit__(self, *error: object) -> None:
        """Nothing was changed."""


def begin_rank(gpu: Any, rank: int, name: str, has_scratch: bool = True) -> Any:
    """A communicator, in a process with a module cupy; without scratch memory, one that fails."""
    gpu.choose(rank)
    stream, like = gpu.stream(), gpu.tensor(np.zeros(1, np.float32))

    def empty(shape: Any, dtype: Any) -> Array:
        if not has_scratch and np.dtype(dtype) == np.uint8:
            raise MemoryError("no bytes are left")
        like.dtype = np.dtype(dtype).name
        return Array(gpu.poisoned(tuple(shape), like))

    cupy: Any = ModuleType("cupy")
    cupy.ndarray, cupy.empty = Array, empty
    cupy.cuda = SimpleNamespace(Device=Device, get_current_stream=lambda _: stream)
    sys.modules["cupy"] = cupy
    return collops.init(rank, 2, backend="nccl", comm_domain=name, timeout_s=patience(60))


@pytest.mark.parametrize("starts", [False, True])
def test_a_reduction_has_scratch_memory(gpu: Any, starts: bool) -> None:
    def work(rank: int) -> list[Any]:
        comm = begin_rank(gpu, rank, "scratch")
        x = Array(gpu.tensor(numbers(rank, sum(SIZES), "float32")))
        found = []
        for _ in range(3):  # the second call is like the first one
            if starts:
                out = comm.start("reduce_scatterv", x, SIZES).wait(patience(60))
            else:
                out = comm.reduce_scatterv(x, SIZES)
            found.append(gpu.array(out.tensor))
        return found

    for rank, found in enumerate(run_ranks(work, 2)):
        for got in found:
            np.testing.assert_array_equal(got, scattered(rank, SIZES, "float32"))


@pytest.mark.parametrize("starts", [False, True])
def test_a_rank_without_scratch_memory_tells_the_others(gpu: Any, starts: bool) -> None:
    def work(rank: int) -> str:
        comm = begin_rank(gpu, rank, "none", has_scratch=rank == 0)
        comm.barrier()
        x = Array(gpu.tensor(numbers(rank, sum(SIZES), "float32")))
        with pytest.raises(collops.Error) as error:  # of rank 0: if the refusal came before
            if starts:
                comm.start("reduce_scatterv", x, SIZES).wait(patience(60))
            else:
                comm.reduce_scatterv(x, SIZES)
            gpu.cuda.call("cuCtxSynchronize")  # the watcher aborts
            comm.barrier()
        with contextlib.suppress(collops.Error):
            comm.barrier()  # behind the refusal, if that was queued
        return str(error.value)

    for text in run_ranks(work, 2):
        assert "no workspace of 2048 bytes" in text and "no bytes are left" in text
