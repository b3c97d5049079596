"""Calls of the simulated libopapi as their published signatures say."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

from tests.npu.simulated.simulated_rank import I32, I64, U64, Memory, P, Rank

FLOAT32, FLOAT16, BFLOAT16 = (
    np.dtype(np.float32),
    np.dtype(np.float16),
    np.dtype(ml_dtypes.bfloat16),
)
ACL = {FLOAT32: 0, FLOAT16: 1, np.dtype(np.int32): 3, BFLOAT16: 27}
ND = 2
NULL, INVALID, INNER = 161001, 161002, 561000
EXTRA = {"aclnnMatmul": [ctypes.c_int8], "aclnnMm": [ctypes.c_int8]}


class Operators:
    """The library, for one rank."""

    def __init__(self, one: Rank) -> None:
        self.one, self.api = one, ctypes.CDLL("libopapi.so")
        for name in ("aclCreateTensor", "aclCreateScalar"):
            getattr(self.api, name).restype = P
        self.api.aclCreateTensor.argtypes = [P, U64, I32, P, I64, I32, P, U64, P]

    def tensor(self, memory: Memory, shape: Any = None, strides: Any = None, offset: int = 0) -> P:
        """A view of device memory; strides are in elements."""
        storage = np.array([memory.like.size], np.int64)
        shape = np.array(memory.like.shape if shape is None else shape, np.int64)
        steps = None if strides is None else np.array(strides, np.int64)
        made = self.api.aclCreateTensor(
            shape.ctypes.data,
            shape.size,
            ACL[memory.like.dtype],
            None if steps is None else steps.ctypes.data,
            offset,
            ND,
            storage.ctypes.data,
            1,
            memory.address,
        )
        return P(made)

    def scalar(self, value: float) -> P:
        return P(self.api.aclCreateScalar(ctypes.byref(ctypes.c_float(value)), 0))

    def prepare(self, name: str, *args: Any) -> tuple[int, int, P]:
        """The first phase: its answer, the bytes of the workspace and the executor."""
        size, executor = U64(), P()
        pointers = ctypes.byref(size), ctypes.byref(executor)
        code = getattr(self.api, f"{name}GetWorkspaceSize")(*args, *pointers)
        return code, size.value, executor

    def launch(self, name: str, workspace: Any, size: int, executor: P) -> int:
        address = P(workspace.address if workspace else None)
        return int(getattr(self.api, name)(address, U64(size), executor, self.one.stream))

    def run(self, name: str, *args: Any) -> None:
        """Both phases, and the end of the work."""
        code, size, executor = self.prepare(name, *args)
        assert code == 0, self.one.text()
        workspace = self.one.empty(size, np.uint8) if size else None
        assert self.launch(name, workspace, size, executor) == 0, self.one.text()
        assert self.one.sync() == 0

    def matmul(self, x: P, y: P, out: P, math: int = 0, name: str = "aclnnMatmul") -> None:
        self.run(name, x, y, out, ctypes.c_int8(math))
