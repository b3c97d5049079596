"""A CUDA tensor of torch by torch's own C function: here that of a stand-in, in its own process.

The binding keeps the first class of torch that it meets, so no other test may meet one before.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.dlpack import CUDA, Described

ROOT = Path(__file__).resolve().parents[3]
SHAPE = (ctypes.c_int64 * 2)(2, 3)
DESCRIBE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Described))


class Api(ctypes.Structure):
    """The table of functions that a class of DLPack 1.3 has."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("others", ctypes.c_void_p * 4),
        ("describe", DESCRIBE),
    )


@DESCRIBE
def describe(tensor: int, described: Any) -> int:
    """What torch's function says of a tensor on cuda:5."""
    told = described.contents
    told.data, told.device_type, told.device_index, told.byte_offset = 0x4000, CUDA, 5, 16
    told.num_dims, told.code, told.bits, told.lanes = 2, 2, 32, 1
    told.shape, told.strides = SHAPE, None
    return 0


API = Api((ctypes.c_uint32 * 2)(1, 3), (ctypes.c_void_p * 4)(), describe)
NAME = b"dlpack_exchange_api"


def capsule() -> Any:
    """The capsule of the table."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p]
    make.argtypes.append(ctypes.c_void_p)
    return make(ctypes.addressof(API), NAME, None)


class Tensor:
    """Has nothing but that function, and what says that its values are in its memory."""

    __module__ = "torch"
    __dlpack_c_exchange_api__ = capsule()
    requires_grad = False

    def is_neg(self) -> bool:
        return False


def test_a_cuda_tensor_is_read_at_once() -> None:
    from patience import patience  # which the process does not find

    command = [sys.executable, "-m", "tests.unit.cuda.test_torch_at_once"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patience(100))
    assert done.returncode == 0, done.stderr


def main() -> None:
    """The process of the test."""
    sys.modules["torch"] = SimpleNamespace(is_grad_enabled=lambda: True)  # type: ignore[assignment]
    from collops.core import core

    seen = core().describe(Tensor())
    assert seen["device"] == "cuda:5", seen
    assert (seen["address"], seen["shape"], seen["numel"]) == (0x4010, "[2, 3]", 6), seen
    assert (seen["dtype"], seen["contiguous"], seen["read_only"]) == ("float32", True, False), seen


if __name__ == "__main__":
    main()
