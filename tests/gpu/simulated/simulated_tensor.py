"""Device memory of a simulated GPU with a shape and a type, as array libraries export theirs."""

from __future__ import annotations

import copy
import ctypes
import threading
from typing import Any

import numpy as np

from tests.dlpack import CODES, CUDA, READ_ONLY, Described, Release, capsule, managed
from tests.gpu.simulated.simulated_driver import Driver

MOST_DEAD = 200

_exports: dict[int, Any] = {}  # what a consumer has not deleted yet, by address
_dead: list[tuple[int, int]] = []  # device and address of memory that nobody names any more
_lock = threading.Lock()


@Release
def _delete(address: int) -> None:
    _exports.pop(address, None)


def free_dead(cuda: Driver) -> None:
    """Frees what no tensor names, when its devices are done, as a caching allocator does."""
    with _lock:
        dead, _dead[:] = list(_dead), []
    for device in {device for device, _ in dead}:
        with cuda.on(device):
            cuda.call("cuCtxSynchronize")
            for other, address in dead:
                if other == device:
                    cuda.free(address)


class SimTensor:
    """C-contiguous elements; bfloat16 has numpy's uint16. Its memory is freed some time later."""

    def __init__(
        self, cuda: Driver, shape: Any, dtype: str, device: int, read_only: bool = False
    ) -> None:
        if len(_dead) > MOST_DEAD:
            free_dead(cuda)
        self.cuda, self.device, self.dtype, self.read_only = cuda, device, dtype, read_only
        self.shape = tuple(int(size) for size in shape)
        self.numpy_dtype = np.dtype(np.uint16 if dtype == "bfloat16" else dtype)
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.numpy_dtype.itemsize
        self.whole: SimTensor | None = None  # whose memory this is
        with cuda.on(device):
            self.address = cuda.alloc(self.nbytes)

    def __del__(self) -> None:
        if hasattr(self, "address") and self.whole is None:
            _dead.append((self.device, self.address))

    def behind(self, begin: int, shape: Any) -> SimTensor:
        """The elements behind the first ones, as a tensor in the same memory."""
        part = copy.copy(self)
        part.whole, part.shape = self, tuple(shape)
        part.address = self.address + begin * self.numpy_dtype.itemsize
        part.nbytes = int(np.prod(part.shape, dtype=np.int64)) * self.numpy_dtype.itemsize
        return part

    def write(self, array: Any) -> None:
        """Copies the elements from numpy, and waits."""
        with self.cuda.on(self.device):
            self.cuda.write(self.address, np.ascontiguousarray(array).view(self.numpy_dtype))

    def read(self) -> Any:
        """The elements, when all work of the device is done."""
        with self.cuda.on(self.device):
            self.cuda.call("cuCtxSynchronize")
            return self.read_now()

    def read_now(self) -> Any:
        """The elements as they are."""
        with self.cuda.on(self.device):
            return self.cuda.read(self.address, self.shape, self.numpy_dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, **_: Any) -> object:
        shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        tensor = Described(self.address, CUDA, self.device, len(self.shape), lanes=1, shape=shape)
        tensor.code = CODES.get(self.dtype, CODES.get(self.numpy_dtype.kind, 0))
        tensor.bits = 8 * self.numpy_dtype.itemsize
        versioned = max_version is not None and tuple(max_version) >= (1, 0)
        held = managed(tensor, READ_ONLY * self.read_only if versioned else None)
        held.release = _delete
        _exports[ctypes.addressof(held)] = (held, shape, self)
        return capsule(held)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype == "bfloat16":
            raise AttributeError("bfloat16 has no type string")
        return {
            "shape": self.shape,
            "typestr": self.numpy_dtype.str,
            "data": (self.address, self.read_only),
            "strides": None,
            "stream": None,
            "version": 3,
        }
