"""Kernels of the simulated GPUs: the bodies of the real ones, by their names."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.gpu.simulated.simulated_driver import (
    INVALID_IMAGE,
    INVALID_VALUE,
    NOT_FOUND,
    U64,
    Driver,
    P,
)

I64, I32 = ctypes.c_int64, ctypes.c_int32
COUNT, RANKS = 1237, 4
FLOAT32, SUM = "float32", "sum"


class Slices(ctypes.Structure):
    """ReduceSlicesArgs."""

    _fields_ = (
        ("output", P),
        ("own", P),
        ("staging", P),
        ("stride", I64),
        ("count", I64),
        ("rank", I32),
        ("rank_size", I32),
        ("dtype", I32),
        ("op", I32),
    )


def numbers() -> tuple[int, int]:
    """collops' own numbers of float32 and of sum, as kernels take them."""
    import re
    from pathlib import Path

    text = (Path(__file__).parents[3] / "ops" / "collops" / "core" / "dtype.h").read_text()
    found = []
    for enum, name in (("DType", "kFloat32"), ("ReduceOp", "kSum")):
        body = re.search(rf"enum class {enum}[^{{]*{{(.*?)}}", text, re.S)
        assert body is not None
        lines = re.findall(r"(k\w+)(?:\s*=\s*(-?\d+))?", re.sub(r"//.*", "", body[1]))
        values: dict[str, int] = {}
        following = 0
        for entry, value in lines:
            values[entry] = int(value) if value else following
            following = values[entry] + 1
        found.append(values[name])
    return found[0], found[1]


def slices(cuda: Driver, data: Any, output: int) -> Slices:
    dtype, op = numbers()
    rest = cuda.put(np.concatenate([data[r] for r in range(RANKS) if r != 1]))
    return Slices(output, cuda.put(data[1]), rest, 4 * COUNT, COUNT, 1, RANKS, dtype, op)


def test_a_kernel_runs_by_its_name(on_gpu: Any) -> None:
    data = np.random.default_rng(3).standard_normal((RANKS, COUNT)).astype(np.float32)

    def work(cuda: Driver) -> Any:
        kernel = cuda.kernel(cuda.load(), "collops_reduce_slices")
        stream, output = cuda.stream(0), cuda.alloc(4 * COUNT)
        assert cuda.launch(kernel, slices(cuda, data, output), stream=stream) == 0
        return cuda.read(output, COUNT, np.float32)

    expected = ((data[0] + data[1]) + data[2]) + data[3]
    assert (on_gpu(work) == expected).all()


def test_arguments_are_copied_at_the_launch(on_gpu: Any) -> None:
    data = np.ones((RANKS, COUNT), np.float32)

    def work(cuda: Driver) -> Any:
        kernel = cuda.kernel(cuda.load(), "collops_reduce_slices")
        stream, output = cuda.stream(), cuda.alloc(4 * COUNT)
        args = slices(cuda, data, output)
        with cuda.held(stream):
            assert cuda.launch(kernel, args, stream=stream) == 0
            args.output, args.count = None, 0
        cuda.sync(stream)
        return cuda.read(output, COUNT, np.float32)

    assert (on_gpu(work) == RANKS).all()


@pytest.mark.parametrize("end", ["output", "own", "staging"])
def test_what_a_kernel_will_use_is_not_freed(on_gpu: Any, end: str) -> None:
    def work(cuda: Driver) -> Any:
        kernel = cuda.kernel(cuda.load(), "collops_reduce_slices")
        stream, output = cuda.stream(), cuda.alloc(4 * COUNT)
        args = slices(cuda, np.ones((RANKS, COUNT), np.float32), output)
        with cuda.held(stream):
            assert cuda.launch(kernel, args, stream=stream) == 0
            code = cuda.code("cuMemFree_v2", U64(getattr(args, end)))
        cuda.sync(stream)
        return code, cuda.mistakes()

    assert on_gpu(work) == (INVALID_VALUE, 1)


def test_wrong_launches_are_refused(on_gpu: Any) -> None:
    def work(cuda: Driver) -> dict[str, int]:
        module = cuda.load()
        kernel = cuda.kernel(module, "collops_convert")
        args = ctypes.create_string_buffer(64)
        with cuda.on(2):
            stream = cuda.stream()
            elsewhere = cuda.launch(kernel, args, stream=stream)
        image = ctypes.byref(P())
        return {
            "no fatbin": cuda.code("cuModuleLoadData", image, bytes(64)),
            "no such kernel": cuda.code("cuModuleGetFunction", image, P(module), b"nothing"),
            "no blocks": cuda.launch(kernel, args, blocks=0),
            "too many threads": cuda.launch(kernel, args, threads=1025),
            "loaded in another context": elsewhere,
            "a stream of another context": cuda.launch(kernel, args, stream=stream),
        }

    assert on_gpu(work) == {
        "no fatbin": INVALID_IMAGE,
        "no such kernel": NOT_FOUND,
        "no blocks": INVALID_VALUE,
        "too many threads": INVALID_VALUE,
        "loaded in another context": 400,
        "a stream of another context": 400,
    }


def test_a_kernel_that_fails_takes_its_context_along(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        kernel, stream = cuda.kernel(cuda.load(), "collops_reduce_slices"), cuda.stream()
        args = slices(cuda, np.ones((RANKS, COUNT), np.float32), cuda.alloc(4 * COUNT))
        launched = cuda.launch(kernel, args, stream=stream)
        first = cuda.code("cuStreamSynchronize", P(stream))
        with_other = cuda.code("cuCtxSynchronize")
        cuda.choose(1)
        return launched, first, with_other, cuda.code("cuCtxSynchronize")

    fail = "run.collops_reduce_slices:1:700"
    assert on_gpu(work, COLLOPS_SIM_FAIL=fail) == (0, 700, 700, 0)


@pytest.mark.parametrize("enables", [True, False])
def test_memory_of_another_device_needs_peer_access(on_gpu: Any, enables: bool) -> None:
    def work(cuda: Driver) -> Any:
        kernel, stream = cuda.kernel(cuda.load(), "collops_reduce_slices"), cuda.stream()
        with cuda.on(1):
            output = cuda.alloc(4 * COUNT)
        if enables:
            cuda.call("cuCtxEnablePeerAccess", P(cuda.context(1)), ctypes.c_uint32(0))
        args = slices(cuda, np.ones((RANKS, COUNT), np.float32), output)
        assert cuda.launch(kernel, args, stream=stream) == 0
        return cuda.code("cuStreamSynchronize", P(stream)), cuda.mistakes()

    assert on_gpu(work) == ((0, 0) if enables else (700, 1))
