"""Stand-ins for tensors on a GPU, and for torch and CuPy: there is no GPU, and no CUDA, here."""

from __future__ import annotations

import ctypes
import itertools
import math
import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.dlpack import CODES, CUDA, Described, Release, capsule, managed

_ends = Release(lambda address: ALIVE.pop(address, None))
ALIVE: dict[int, Any] = {}  # what capsules hold that are not gone yet, by the capsule


class OnGpu:
    """A tensor with __dlpack__ of device CUDA at an address that nobody can read.

    It records the arguments of every export, and how many capsules are alive then.
    """

    def __init__(
        self,
        shape: Sequence[int] = (4,),
        dtype: str = "float32",
        *,
        device: tuple[int, int] = (CUDA, 0),
        flags: int | None = 0,
        address: int = 0x1000,
        strides: Sequence[int] | None = None,
    ) -> None:
        self.sizes, self.type, self.said_flags = tuple(shape), np.dtype(dtype), flags
        self.where, self.at, self.steps = device, address, strides
        self.asked: list[dict[str, Any]] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.where

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        self.asked.append({"stream": stream, "max_version": max_version})
        return self.capsule()

    @property
    def streams(self) -> list[Any]:
        """The streams of the exports."""
        return [arguments["stream"] for arguments in self.asked]

    def capsule(self) -> Any:
        """A versioned capsule with the flags; one without a version if they are None."""
        numbers = ctypes.c_int64 * max(len(self.sizes), 1)
        tensor = Described(self.at, *self.where, len(self.sizes), CODES[self.type.kind])
        tensor.bits, tensor.lanes = 8 * self.type.itemsize, 1
        tensor.shape = numbers(*self.sizes)
        if self.steps is not None:
            tensor.strides = numbers(*self.steps)
        held = managed(tensor, self.said_flags)
        made = capsule(held, _ends)
        ALIVE[id(made)] = held
        return made


class CupyArray(OnGpu):
    """What is read of a CuPy array."""

    __module__ = "cupy"

    addresses = itertools.count(0x100000, 0x1000)

    def __init__(self, shape: Sequence[int], dtype: Any = "float32", index: int = 0) -> None:
        super().__init__(shape, np.dtype(dtype).name, device=(CUDA, index), flags=None)
        self.at = next(self.addresses)
        self.shape, self.dtype, self.ndim = self.sizes, self.type, len(self.sizes)
        self.size = math.prod(self.sizes)
        self.device = SimpleNamespace(id=index)
        self.flags = SimpleNamespace(c_contiguous=True)


class _CupyDevice:
    """cupy.cuda.Device as a context manager; `current` is the one inside."""

    current = 0

    def __init__(self, index: int) -> None:
        self.index = index

    def __enter__(self) -> None:
        self.before, _CupyDevice.current = _CupyDevice.current, self.index

    def __exit__(self, *error: object) -> None:
        _CupyDevice.current = self.before


class Stream:
    """A stream of CuPy."""

    def __init__(self, number: int) -> None:
        self.ptr = number


def stand_in_cupy(monkeypatch: pytest.MonkeyPatch, streams: dict[int, int]) -> Any:
    """A module cupy whose current stream of each GPU is given."""

    def empty(shape: Sequence[int], dtype: Any) -> CupyArray:
        return CupyArray(shape, dtype, _CupyDevice.current)

    cupy: Any = ModuleType("cupy")
    cupy.ndarray, cupy.empty = CupyArray, empty
    cupy.cuda = SimpleNamespace(
        Device=_CupyDevice, get_current_stream=lambda index: Stream(streams[index])
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return cupy


class TorchType:
    """Prints as torch's types do."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"


class Tensor:
    """What is read of a torch tensor on CUDA."""

    __module__ = "torch"
    requires_grad = is_cpu = False

    def __init__(self, shape: Sequence[int], index: int = 0, name: str = "float32") -> None:
        self.shape = tuple(shape)
        self.dtype = TorchType(name)
        self.device = SimpleNamespace(type="cuda", index=index)
        self.recorded: list[Any] = []

    def data_ptr(self) -> int:
        return 0x2000

    def is_contiguous(self) -> bool:
        return True

    def is_neg(self) -> bool:
        return False

    def record_stream(self, stream: Any) -> None:
        self.recorded.append(stream)


def stand_in_torch(monkeypatch: pytest.MonkeyPatch, streams: dict[int, int]) -> Any:
    """A module torch whose current stream of each GPU is given."""
    torch: Any = ModuleType("torch")
    torch.cuda = SimpleNamespace(
        is_initialized=lambda: True,
        current_stream=lambda index: SimpleNamespace(cuda_stream=streams[index]),
    )
    torch.Tensor = Tensor
    torch.is_grad_enabled = lambda: False
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch
