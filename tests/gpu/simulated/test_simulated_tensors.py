"""Tensors on simulated GPUs: what they export, and how graphs and streams are made of them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from collops.testing import run_ranks

DTYPES = ["bool", "int8", "uint8", "int64", "float16", "float32", "float64", "bfloat16"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_come_back(gpu: Any, dtype: str) -> None:
    bits = np.arange(60).reshape(3, 20)
    array = bits.astype(np.uint16 if dtype == "bfloat16" else dtype)

    def work(_: int) -> Any:
        gpu.choose(2)
        tensor = gpu.tensor(array, dtype)
        poisoned = gpu.array(gpu.poisoned((2, 3), tensor)).view(np.uint8)
        return gpu.array(tensor), set(poisoned.ravel()), tensor.__dlpack_device__()

    [(back, poison, device)] = run_ranks(work, 1)
    assert back.dtype == array.dtype
    assert (back == array).all()
    assert poison == {0xA5}
    assert device == (2, 2)


def test_what_is_exported(gpu: Any) -> None:
    def work(_: int) -> Any:
        tensor = gpu.tensor(np.ones((2, 3), np.float32), read_only=True)
        names = [repr(tensor.__dlpack__()), repr(tensor.__dlpack__(max_version=(1, 0), stream=1))]
        interface = tensor.__cuda_array_interface__
        return names, tensor.streams, tensor.versions, interface["data"][1], interface["shape"]

    [(names, streams, versions, read_only, shape)] = run_ranks(work, 1)
    assert '"dltensor"' in names[0]
    assert '"dltensor_versioned"' in names[1]
    assert streams == [None, 1]
    assert versions == [None, (1, 0)]
    assert read_only
    assert shape == (2, 3)


@pytest.mark.parametrize("tells", [True, False])
def test_a_consumer_waits_for_the_producer_if_it_tells_its_stream(gpu: Any, tells: bool) -> None:
    def work(_: int) -> bool:
        producer, consumer = gpu.stream(), gpu.stream()
        tensor = gpu.tensor(np.zeros(16, np.uint8))
        tensor.producer = producer.ptr
        with gpu.held(producer):
            assert gpu.cuda.fill(tensor.address, 5, 16, producer.ptr) == 0
            tensor.__dlpack__(stream=consumer.ptr if tells else -1)
            # Only the consumer's stream; array() would wait for all.
            idle = gpu.cuda.code("cuStreamQuery", ctypes.c_void_p(consumer.ptr)) == 0
        producer.synchronize()
        consumer.synchronize()
        return not idle

    assert run_ranks(work, 1) == [tells]


def test_a_graph_is_replayed_with_changed_data(gpu: Any) -> None:
    def work(_: int) -> list[int]:
        stream, source = gpu.stream(), gpu.tensor(np.zeros(64, np.uint8))
        target = gpu.poisoned((64,), source)
        with gpu.captured(stream) as graph:
            assert gpu.cuda.copy(target.address, source.address, 64, stream.ptr) == 0
        found = [int(gpu.array(target)[0])]
        for value in (3, 4):
            source.write(np.full(64, value, np.uint8))
            graph.replay(stream)
            found.append(int(gpu.array(target)[63]))
        graph.destroy()
        return found

    assert run_ranks(work, 1) == [[0xA5, 3, 4]]


def test_many_tensors_give_their_memory_back(gpu: Any) -> None:
    def work(_: int) -> int:
        for i in range(700):
            gpu.tensor(np.full(8, i % 251, np.uint8))
        return int(gpu.mistakes())

    assert run_ranks(work, 1) == [0]
