"""DLPack's structures and capsules, for tensors that tests make up."""

from __future__ import annotations

import ctypes
from typing import Any

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
READ_ONLY = 1  # a flag of versioned capsules
# Numbers of types, by numpy's kinds.
CODES = {"i": 0, "u": 1, "f": 2, "bfloat16": 4, "c": 5, "b": 6}


class Described(ctypes.Structure):
    """DLTensor: the description of a tensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("num_dims", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", Described), ("context", ctypes.c_void_p), ("release", Release))


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("release", Release),
        ("flags", ctypes.c_uint64),
        ("tensor", Described),
    )


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


def managed(tensor: Described, flags: int | None) -> Any:
    """What a capsule of the tensor holds: versioned with the flags, or without if they are None."""
    if flags is None:
        return Managed(tensor=tensor)
    return Versioned(major=1, minor=0, flags=flags, tensor=tensor)


def capsule(held: Any, ends: Any = None) -> Any:
    """A capsule of it, which the caller keeps alive; `ends`: called with the capsule's address."""
    name = b"dltensor_versioned" if isinstance(held, Versioned) else b"dltensor"
    return _new_capsule(ctypes.addressof(held), name, ends)
