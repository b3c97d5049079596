"""A consumer of DLPack capsules of GPU memory, as an array library is one."""

from __future__ import annotations

import ctypes
from typing import Any

from tests.dlpack import Managed, Versioned

_api = ctypes.pythonapi
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_USED = b"used"


class Consumer:
    """What an array library keeps of a tensor that it has taken over."""

    def __init__(self, array: Any, stream: int | None, versioned: bool = True) -> None:
        version = (1, 0) if versioned else None
        capsule = array.__dlpack__(stream=stream, max_version=version)
        name = b"dltensor_versioned" if versioned else b"dltensor"
        self._at = _api.PyCapsule_GetPointer(capsule, name)
        _api.PyCapsule_SetName(capsule, _USED)
        kind = Versioned if versioned else Managed
        self._managed: Any = kind.from_address(self._at)
        tensor = self._managed.tensor
        self.address = int(tensor.data or 0)
        self.device = int(tensor.device_type), int(tensor.device_index)
        self.shape = tuple(tensor.shape[: tensor.num_dims])
        self.strides = tuple(tensor.strides[: tensor.num_dims])
        self.type = int(tensor.code), int(tensor.bits)

    def release(self) -> None:
        """Lets go of the tensor."""
        self._managed.release(self._at)
