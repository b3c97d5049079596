"""Device memory of a simulated GPU with a shape and a type, as array libraries export theirs."""

from __future__ import annotations

import copy
import ctypes
import threading
from typing import Any

import numpy as np

from tests.gpu.simulated.simulated_driver import DISABLE_TIMING, U32, U64, Driver, P

# DLPack's codes of types, and its number of CUDA.
CODES = {"i": 0, "u": 1, "f": 2, "bfloat16": 4, "c": 5, "b": 6}
CUDA = 2
READ_ONLY = 1
MOST_DEAD = 200


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", P),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", U64),
    )


_DELETER = ctypes.CFUNCTYPE(None, P)


class DLManaged(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", _Tensor), ("context", P), ("deleter", _DELETER))


class DLVersioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", U32),
        ("minor", U32),
        ("context", P),
        ("deleter", _DELETER),
        ("flags", U64),
        ("tensor", _Tensor),
    )


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [P, ctypes.c_char_p, P]

_exports: dict[int, Any] = {}  # what a consumer has not deleted yet, by address
_dead: list[tuple[int, int]] = []  # device and address of memory that nobody names any more
_lock = threading.Lock()


@_DELETER
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
    """C-contiguous elements; bfloat16 has numpy's uint16. Its memory is freed some time after it.

    `versions` and `streams` are what `__dlpack__` was asked with.
    """

    def __init__(
        self, cuda: Driver, shape: Any, dtype: str, device: int, read_only: bool = False
    ) -> None:
        if len(_dead) > MOST_DEAD:
            free_dead(cuda)
        self.cuda, self.device, self.dtype, self.read_only = cuda, device, dtype, read_only
        self.shape = tuple(int(size) for size in shape)
        self.numpy_dtype = np.dtype(np.uint16 if dtype == "bfloat16" else dtype)
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.numpy_dtype.itemsize
        self.versions: list[Any] = []
        self.streams: list[Any] = []
        self.producer: int | None = None  # a stream whose work a consumer must wait for
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
        self.streams.append(stream)
        self.versions.append(max_version)
        self._order(stream)
        versioned = max_version is not None and tuple(max_version) >= (1, 0)
        shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        managed: Any = DLVersioned() if versioned else DLManaged()
        if versioned:
            managed.major, managed.minor = 1, 0
            managed.flags = READ_ONLY if self.read_only else 0
        tensor = managed.tensor
        tensor.data, tensor.device_type, tensor.device_id = self.address, CUDA, self.device
        tensor.ndim, tensor.shape, tensor.lanes = len(self.shape), shape, 1
        tensor.code = CODES.get(self.dtype, CODES.get(self.numpy_dtype.kind, 0))
        tensor.bits = 8 * self.numpy_dtype.itemsize
        managed.deleter = _delete
        address = ctypes.addressof(managed)
        _exports[address] = (managed, shape, self)
        return _new_capsule(address, b"dltensor_versioned" if versioned else b"dltensor", None)

    def _order(self, stream: Any) -> None:
        """The consumer's stream waits for the producer's work, as DLPack wants it."""
        if self.producer is None or stream in (None, -1):
            return
        with self.cuda.on(self.device):
            event = self.cuda.event(DISABLE_TIMING)
            assert self.cuda.record(event, self.producer) == 0
            assert self.cuda.wait(int(stream), event) == 0

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype == "bfloat16":
            raise AttributeError("bfloat16 has no type string")
        return {
            "shape": self.shape,
            "typestr": self.numpy_dtype.str,
            "data": (self.address, self.read_only),
            "strides": None,
            "stream": self.producer,
            "version": 3,
        }
