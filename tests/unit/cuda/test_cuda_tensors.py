"""Tensors on GPUs as the binding reads them, through DLPack alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collops
from collops.core import core
from tests.dlpack import CPU, CUDA, CUDA_HOST, CUDA_MANAGED, READ_ONLY
from tests.unit.cuda.cuda_stand_ins import ALIVE, OnGpu


@pytest.mark.parametrize(
    ("kind", "index", "device"),
    [(CUDA, 0, "cuda:0"), (CUDA, 3, "cuda:3"), (CUDA_MANAGED, 1, "cuda:1"), (CUDA_HOST, 0, "cpu")],
)
def test_the_device_is_the_one_that_dlpack_says(kind: int, index: int, device: str) -> None:
    seen = core().describe(OnGpu((2, 3), "int32", device=(kind, index), address=0x7000))
    assert (seen["device"], seen["address"]) == (device, 0x7000)
    assert (seen["shape"], seen["numel"], seen["dtype"]) == ("[2, 3]", 6, "int32")
    assert seen["contiguous"]


def test_strides_of_a_tensor_on_a_gpu() -> None:
    assert not core().describe(OnGpu((2, 3), strides=(1, 2)))["contiguous"]
    assert core().describe(OnGpu((2, 3), strides=(3, 1)))["contiguous"]


@pytest.mark.parametrize(
    ("flags", "device", "read_only"),
    [
        (0, CUDA, False),
        (READ_ONLY, CUDA, True),
        (2, CUDA, False),  # another flag: a copy was made
        (None, CUDA, False),  # no version, and no flags, as CuPy's
        (0, CPU, True),
        (None, CPU, True),
    ],
)
def test_which_memory_may_be_written(flags: int | None, device: int, read_only: bool) -> None:
    assert core().describe(OnGpu(flags=flags, device=(device, 0)))["read_only"] == read_only


class OfJax(OnGpu):
    __module__ = "jaxlib._jax"


def test_arrays_of_jax_never_change() -> None:
    assert core().describe(OfJax(flags=None))["read_only"]


class NoStream(OnGpu):
    """Of a producer that knows no stream and no version."""

    def __dlpack__(self) -> Any:  # type: ignore[override]
        self.asked.append({"stream": "none"})
        return self.capsule()


class NoVersion(OnGpu):
    """Of a producer before DLPack 1.0."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        self.asked.append({"stream": stream})
        return self.capsule()


@pytest.mark.parametrize(("kind", "stream"), [(OnGpu, 1), (NoVersion, 1), (NoStream, "none")])
def test_producers_of_every_age_are_asked(kind: Any, stream: Any) -> None:
    tensor = kind(flags=None)
    assert core().describe(tensor)["device"] == "cuda:0"
    assert tensor.streams == [stream]


def test_on_the_cpu_no_stream_is_named() -> None:
    tensor = OnGpu(device=(CPU, 0))
    core().describe(tensor)
    assert tensor.asked == [{"stream": None, "max_version": (1, 0)}]


class Elsewhere(OnGpu):
    """Says one device, and has memory on another."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 1


def test_a_tensor_whose_two_devices_differ_is_refused() -> None:
    with pytest.raises(collops.Error, match=r"gave memory on cuda:0, but .* says cuda:1") as caught:
        core().describe(Elsewhere())
    assert caught.value.name == "ERROR_INVALID_PARAM"


def test_a_tensor_on_another_device_is_refused_by_name() -> None:
    x, out = OnGpu((4,), device=(CUDA, 2)), np.empty(4, np.float32)
    op = collops.Operation(collops.AllGatherVParam(rank=0, rank_size=2, backend="shm"))
    one, two = np.array([4]), np.array([4, 0])
    ins = [x, one, two, np.array([0, 4]), np.empty(4, np.float16)]
    with pytest.raises(collops.Error, match=r"x is on cuda:2; this backend moves CPU") as caught:
        op.get_workspace_size(ins, [out])
    assert caught.value.name == "ERROR_INVALID_TENSOR_ADDR"
    with (
        collops.init(0, 1, comm_domain="alone") as comm,
        pytest.raises(collops.Error, match=r"all_gatherv: x is on cuda:2; this backend moves CPU"),
    ):
        comm.all_gatherv(x, [4], out=out)


def test_counts_on_a_gpu_are_refused() -> None:
    op = collops.Operation(collops.AllGatherVParam(rank=0, rank_size=2, backend="shm"))
    one, on_gpu = np.array([4]), OnGpu((2,), "int64")
    x, out = np.zeros(4, np.float32), np.empty(4, np.float32)
    with pytest.raises(collops.Error, match=r"recvCounts is on cuda:0; counts are host tensors"):
        op.get_workspace_size([x, one, on_gpu, np.array([0, 4]), np.empty(4, np.float16)], [out])


def test_capsules_are_given_back() -> None:
    before = len(ALIVE)
    tensor = OnGpu()
    for _ in range(3):
        core().describe(tensor)
    op = collops.Operation(collops.LinearParallelParam(rank=0, rank_size=2, type=3, backend="shm"))
    with pytest.raises(collops.Error):
        op.execute([tensor, tensor], [tensor])
    assert len(ALIVE) == before
    assert len(tensor.asked) == 6
