"""CudaArray: what is written is read, and what other libraries are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collops
from tests.gpu.arrays.dlpack_consumer import Consumer
from tests.gpu.arrays.one_process import alone

DTYPES = {
    "bool": (6, 8), "int8": (0, 8), "int16": (0, 16), "int32": (0, 32), "int64": (0, 64),
    "uint8": (1, 8), "uint16": (1, 16), "uint32": (1, 32), "uint64": (1, 64),
    "float16": (2, 16), "float32": (2, 32), "float64": (2, 64), "bfloat16": (4, 16),
    "complex64": (5, 64), "complex128": (5, 128),
}  # fmt: skip
SHAPES: list[tuple[int, ...]] = [(), (0,), (7,), (3, 5), (2, 0, 3), (2, 3, 5, 7)]


def values(shape: tuple[int, ...], dtype: Any) -> Any:
    """Values that differ in every position."""
    return (np.arange(np.prod(shape, dtype=int)) % 251 + 1).reshape(shape).astype(dtype)


@pytest.mark.parametrize("name", DTYPES)
def test_values_come_back(gpu: Any, name: str) -> None:
    def work() -> None:
        gpu.choose(2)
        assert gpu.cuda is not None  # makes the context current
        for shape in SHAPES:
            x = collops.cuda_empty(shape, name)
            host = values(shape, x.dtype)
            x.write(host)
            found = x.read()
            assert (found.shape, found.dtype, x.dtype.name) == (shape, host.dtype, name)
            assert found.tobytes() == host.tobytes()
            assert (x.shape, x.ndim, x.size) == (shape, len(shape), host.size)
            assert (x.nbytes, x.device) == (host.nbytes, 2)
            assert bool(x.ptr) == bool(host.size)

    alone(work)


def test_strided_values_and_streams(gpu: Any) -> None:
    def work() -> None:
        host = values((6, 8), np.float32)
        x = collops.cuda_empty([8, 6], np.dtype(np.float32), device=1)
        gpu.choose(1)
        stream = gpu.stream()
        x.write(host.T, stream=stream)
        np.testing.assert_array_equal(x.read(stream=stream.ptr), host.T)
        assert repr(x) == "<collops.CudaArray [8, 6] of float32 on cuda:1>"

    alone(work)


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("name", DTYPES)
def test_a_consumer_sees_the_array(gpu: Any, name: str, versioned: bool) -> None:
    def work() -> None:
        gpu.choose(3)
        assert gpu.cuda is not None
        x = collops.cuda_empty((3, 4, 5), name)
        host = values(x.shape, x.dtype)
        x.write(host)
        assert x.__dlpack_device__() == (2, 3)
        seen = Consumer(x, gpu.stream().ptr, versioned)
        assert (seen.address, seen.device) == (x.ptr, (2, 3))
        assert (seen.shape, seen.strides) == ((3, 4, 5), (20, 5, 1))
        assert seen.type == DTYPES[name]
        del x
        found = gpu.cuda.read(seen.address, seen.shape, host.dtype)
        assert found.tobytes() == host.tobytes()
        seen.release()

    alone(work)


def test_the_interface_of_cuda_arrays(gpu: Any) -> None:
    def work() -> None:
        x = collops.cuda_empty((2, 3), np.int16)
        said = x.__cuda_array_interface__
        assert said["data"] == (x.ptr, False)
        assert (said["shape"], said["typestr"], said["version"]) == ((2, 3), "<i2", 3)
        assert said["stream"] == 1
        assert said["strides"] is None
        assert not hasattr(collops.cuda_empty(3, "bfloat16"), "__cuda_array_interface__")
        with pytest.raises(BufferError, match="its own memory only"):
            x.__dlpack__(dl_device=(1, 0))
        with pytest.raises(BufferError, match="its own memory only"):
            x.__dlpack__(copy=True)

    alone(work)


def test_what_is_refused(gpu: Any) -> None:
    def work() -> None:
        x = collops.cuda_empty((2, 3), np.float32)
        with pytest.raises(collops.ArgumentError, match=r"write: array must have shape \[2, 3\], "):
            x.write(np.zeros((3, 2), np.float32))
        with pytest.raises(collops.ArgumentError, match="write: array must be float32 as the arr"):
            x.write(np.zeros((2, 3)))
        with pytest.raises(collops.ArgumentError, match="write: stream must be None, a number or"):
            x.write(np.zeros((2, 3), np.float32), stream="first")
        with pytest.raises(
            collops.ArgumentError, match=r"cuda_empty: device must be from 0 to 7, g"
        ):
            collops.cuda_empty(3, np.int8, device=8)
        with pytest.raises(
            collops.Error, match=r"cuda_empty: 1099511627776 bytes of GPU 0"
        ) as full:
            collops.cuda_empty(1 << 40, np.int8)
        assert full.value.name == "ERROR_OUT_OF_DEVICE_MEMORY"
        assert "cuda_empty_cache() frees" in str(full.value)

    alone(work)


def test_copies_wait_for_no_captured_stream(gpu: Any) -> None:
    def work() -> None:
        x, stream = collops.cuda_empty(3, np.int8, device=0), gpu.stream()
        with gpu.captured(stream) as graph:
            for copy in (lambda: x.write(np.zeros(3, np.int8), stream), lambda: x.read(stream)):
                with pytest.raises(collops.ArgumentError, match="the stream is captured, and this"):
                    copy()
        graph.destroy()

    alone(work)
