"""One rank that calls the simulated libraries as their published signatures say."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

P, I32, U32, U64, I64 = (
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_uint32,
    ctypes.c_uint64,
    ctypes.c_int64,
)
ROOT_INFO_BYTES = 4108
SUM, PROD = 0, 1
SEND, RECV = 0, 1
E_PARA, E_PTR, E_INTERNAL, E_NOT_SUPPORT, E_NOT_FOUND, E_UNAVAIL, E_TIMEOUT = 1, 2, 4, 5, 6, 7, 9
TYPES = {
    name: number
    for number, name in enumerate(
        "int8 int16 int32 float16 float32 int64 uint64 uint8 uint16 uint32 float64".split()
    )
}
BFLOAT16 = 11

SIGNATURES: dict[str, list[Any]] = {
    "HcclAllGather": [P, P, U64, I32, P, P],
    "HcclAllGatherV": [P, U64, P, P, P, I32, P, P],
    "HcclReduceScatter": [P, P, U64, I32, I32, P, P],
    "HcclReduceScatterV": [P, P, P, P, U64, I32, I32, P, P],
    "HcclAllReduce": [P, P, U64, I32, I32, P, P],
    "HcclReduce": [P, P, U64, I32, I32, U32, P, P],
    "HcclBroadcast": [P, U64, I32, U32, P, P],
    "HcclAlltoAllV": [P, P, P, I32, P, P, P, I32, P, P],
    "HcclSend": [P, U64, I32, U32, P, P],
    "HcclRecv": [P, U64, I32, U32, P, P],
    "HcclBatchSendRecv": [P, U32, P, P],
    "HcclBarrier": [P, P],
}


class Item(ctypes.Structure):
    """HcclSendRecvItem."""

    _fields_ = (("kind", I32), ("buf", P), ("count", U64), ("type", I32), ("peer", U32))


class Memory:
    """Numbers in device memory, poisoned at first."""

    def __init__(self, acl: ctypes.CDLL, shape: Any, dtype: Any) -> None:
        self.acl, self.like = acl, np.empty(shape, dtype)
        pointer = P()
        assert acl.aclrtMalloc(ctypes.byref(pointer), ctypes.c_size_t(self.like.nbytes), 0) == 0
        self.address = int(pointer.value or 0)

    def copy(self, to: int, source: int, kind: int) -> None:
        size = ctypes.c_size_t(self.like.nbytes)
        assert self.acl.aclrtMemcpy(P(to), size, P(source), size, kind) == 0

    def write(self, array: Any) -> None:
        contiguous = np.ascontiguousarray(array, self.like.dtype)
        self.copy(self.address, contiguous.ctypes.data, 1)

    def read(self) -> Any:
        array = np.empty_like(self.like)
        self.copy(array.ctypes.data, self.address, 2)
        return array

    def free(self) -> int:
        return int(self.acl.aclrtFree(P(self.address)))


class Rank:
    """A rank, its NPU, a stream and a communicator."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        self.acl, self.hccl = ctypes.CDLL("libascendcl.so"), ctypes.CDLL("libhccl.so")
        self.acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
        assert self.acl.aclrtSetDevice(rank) == 0
        self.stream, self.comm = self.new_stream(), P()
        self.kept: Any = None  # what a call reads later

    def new_stream(self) -> P:
        stream = P()
        assert self.acl.aclrtCreateStream(ctypes.byref(stream)) == 0
        return stream

    def root_info(self, folder: Path) -> Any:
        """Rank 0's, that the others read from the folder."""
        path = folder / "root_info"
        if self.rank == 0:
            info = ctypes.create_string_buffer(ROOT_INFO_BYTES)
            assert self.hccl.HcclGetRootInfo(info) == 0
            path.with_suffix(".new").write_bytes(info.raw)
            path.with_suffix(".new").rename(path)
            return info
        while not path.exists():
            time.sleep(0.002)
        return ctypes.create_string_buffer(path.read_bytes(), ROOT_INFO_BYTES)

    def meet(self, name: str) -> None:
        """Waits on the host until all ranks have come."""
        (self.folder / f"{name}-{self.rank}").touch()
        while len(list(self.folder.glob(f"{name}-*"))) < self.ranks:
            time.sleep(0.002)

    def connect(self, folder: Path) -> None:
        self.folder = folder
        info, comm = self.root_info(folder), ctypes.byref(self.comm)
        assert self.hccl.HcclCommInitRootInfo(self.ranks, info, self.rank, comm) == 0

    def device(self, array: Any) -> Memory:
        """The array's numbers in device memory."""
        memory = Memory(self.acl, array.shape, array.dtype)
        memory.write(array)
        return memory

    def empty(self, shape: Any, dtype: Any) -> Memory:
        return Memory(self.acl, shape, dtype)

    def start(self, name: str, *args: Any, **over: Any) -> int:
        """The call's answer; buffers are `Memory` or addresses, lists are uint64 arrays."""
        function = getattr(self.hccl, name)
        function.argtypes = SIGNATURES[name]
        values = []
        for value in args:
            if isinstance(value, Memory):
                value = value.address
            elif isinstance(value, np.ndarray):
                value = value.ctypes.data
            values.append(value)
        comm, stream = over.get("comm", self.comm), over.get("stream", self.stream)
        return int(function(*values, comm, stream))

    def sync(self, stream: Any = None) -> int:
        return int(self.acl.aclrtSynchronizeStreamWithTimeout(stream or self.stream, 20000))

    def run(self, name: str, *args: Any, **over: Any) -> None:
        """The call, and its end."""
        assert self.start(name, *args, **over) == 0, self.text()
        assert self.sync(over.get("stream")) == 0

    @contextlib.contextmanager
    def held(self, only: bool = True) -> Iterator[None]:
        """The stream begins nothing meanwhile, on the rank for which `only` holds."""
        if only:
            assert self.acl.SimHoldStream(self.stream) == 0
        yield
        if only:
            assert self.acl.SimReleaseStream(self.stream) == 0

    def async_error(self) -> int:
        error = I32()
        assert self.hccl.HcclGetCommAsyncError(self.comm, ctypes.byref(error)) == 0
        return error.value

    def text(self) -> str:
        """CANN's text of the last failure."""
        return (self.acl.aclGetRecentErrMsg() or b"").decode()


def type_of(dtype: Any) -> int:
    return TYPES[np.dtype(dtype).name]


def items(*transfers: tuple[int, Memory, int]) -> Any:
    """HcclSendRecvItems of (kind, memory, peer)."""
    made = [
        Item(k, m.address, m.like.size, type_of(m.like.dtype), peer) for k, m, peer in transfers
    ]
    return (Item * len(made))(*made)
