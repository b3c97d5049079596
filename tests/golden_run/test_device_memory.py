"""Golden's arrays on devices: which library makes them, and what is asked of torch and of CuPy.

There is no CUDA here: a torch and a CuPy of the test's own record what they are asked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collops.core import core
from collops.golden_run import backends
from collops.golden_run.backends import CupyMemory, OwnMemory, TorchMemory
from collops.golden_run.rank import Door
from collops.launch.processes import run_on_threads


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """What is known of this machine's libraries is forgotten, before and after."""
    for _ in range(2):
        backends.memory_of.cache_clear()
        backends._memory_of_gpus.cache_clear()
        if _ == 0:
            yield


class Recorded:
    """What a library was asked, in order."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    def note(self, name: str, answer: Any = None) -> Any:
        def call(*arguments: Any) -> Any:
            self.asked.append((name, *arguments))
            return answer

        return call


def torch_with(cuda: str | None, recorded: Recorded) -> Any:
    """A module torch that was built with that CUDA."""
    torch: Any = ModuleType("torch")
    streams = iter(range(100, 200))
    torch.version = SimpleNamespace(cuda=cuda)
    torch.cuda = SimpleNamespace(
        device_count=lambda: 2,
        set_device=recorded.note("set_device"),
        set_stream=recorded.note("set_stream"),
        Stream=lambda: next(streams),
    )
    return torch


def test_the_memory_of_backends_of_the_cpu_is_none() -> None:
    assert backends.memory_of("shm") is None
    assert backends.memory_of("ucx") is None
    assert backends.memory_of("no such backend") is None


@pytest.mark.parametrize("backend", ["cuda", "nccl"])
def test_torch_with_cuda_goes_first_then_cupy_then_collops(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_with("13.0", Recorded()))
    assert type(backends.memory_of(backend)) is TorchMemory
    backends.memory_of.cache_clear()
    backends._memory_of_gpus.cache_clear()
    monkeypatch.setitem(sys.modules, "torch", torch_with(None, Recorded()))
    monkeypatch.setattr(backends, "is_installed", lambda name: True)
    assert type(backends.memory_of(backend)) is CupyMemory
    backends.memory_of.cache_clear()
    backends._memory_of_gpus.cache_clear()
    monkeypatch.setitem(sys.modules, "torch", None)  # cannot be imported
    monkeypatch.setattr(backends, "is_installed", lambda name: False)
    assert type(backends.memory_of(backend)) is OwnMemory


def test_torch_gives_each_rank_a_gpu_and_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded()
    monkeypatch.setitem(sys.modules, "torch", torch_with("13.0", recorded))
    memory = TorchMemory("cuda", "torch", "cuda")
    memory.load()
    for rank in (0, 3, 0):
        memory.choose_device(rank)
    assert recorded.asked == [
        *[("set_device", 0), ("set_stream", 100)],
        *[("set_device", 1), ("set_stream", 101)],
        *[("set_device", 0), ("set_stream", 100)],
    ]
    assert memory.stream() is None  # the current one


def test_cupy_is_used_on_the_stream_of_collops(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded()
    cupy: Any = ModuleType("cupy")
    cupy.ndarray, cupy.asarray, cupy.asnumpy = np.ndarray, np.array, np.array
    used = SimpleNamespace(use=recorded.note("use"))
    cupy.cuda = SimpleNamespace(
        Device=recorded.note("Device", used),
        ExternalStream=recorded.note("ExternalStream", used),
        runtime=SimpleNamespace(getDeviceCount=lambda: 2),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    stream = SimpleNamespace(__cuda_stream__=lambda: (0, 77))
    driver = {"cuda_devices": [None, None], "use_cuda_device": None, "CudaStream": stream}
    for name, answer in driver.items():
        monkeypatch.setattr(core(), name, recorded.note(name, answer))
    memory = CupyMemory()
    memory.load()
    memory.choose_device(3)
    assert recorded.asked == [
        *[("cuda_devices",), ("use_cuda_device", 1), ("CudaStream", 1)],
        *[("Device", 1), ("use",), ("ExternalStream", 77), ("use",)],
    ]
    assert memory.stream() is stream
    values = np.arange(4, dtype=np.int64)
    assert memory.from_device(memory.to_device(values, "int64")).tolist() == [0, 1, 2, 3]
    own = recorded.note("own")
    monkeypatch.setattr(OwnMemory, "to_device", lambda self, *rest: own(*rest))
    memory.to_device(values, "bfloat16")  # CuPy has no such type
    assert recorded.asked[-1] == ("own", values, "bfloat16")


def test_a_library_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    with pytest.raises(ValueError, match="backend hccl needs tensors of torch_npu: "):
        TorchMemory("npu", "torch_npu", "hccl").load()
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ValueError, match="CuPy, which is installed, cannot be used: "):
        CupyMemory().load()


def test_ranks_at_a_door_wait_for_the_last_one() -> None:
    door, came = Door(), []

    def work(rank: int) -> int:
        came.append(rank)
        door.enter()
        return len(came)

    door.close(4)
    found, _ = run_on_threads(range(4), work, 60)
    assert found == dict.fromkeys(range(4), 4)


def test_nobody_waits_at_a_door_that_a_rank_has_opened() -> None:
    door = Door()
    door.enter()  # it was never closed
    door.close(3)
    found, late = run_on_threads(
        range(3), lambda rank: door.open() if rank == 1 else door.enter(), 60
    )
    assert not late and len(found) == 3
