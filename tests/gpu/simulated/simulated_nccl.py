"""One rank that calls the simulated libnccl as its published signatures say."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.gpu.simulated.simulated_driver import I32, SIZE, Driver, P

ID_BYTES = 128
SUM = 0
SYSTEM_ERROR, INTERNAL, ARGUMENT, USAGE, IN_PROGRESS = 2, 3, 4, 5, 7
INT32, FLOAT32 = 2, 7


class UniqueId(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * ID_BYTES),)


class Config(ctypes.Structure):
    """How ncclConfig_t begins; the fields behind are not set."""

    _fields_ = (
        ("size", SIZE),
        ("magic", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("blocking", I32),
        ("rest", I32 * 13),
    )


SIGNATURES: dict[str, list[Any]] = {
    "ncclAllGather": [P, P, SIZE, I32, P, P],
    "ncclReduceScatter": [P, P, SIZE, I32, I32, P, P],
    "ncclAllReduce": [P, P, SIZE, I32, I32, P, P],
    "ncclBroadcast": [P, P, SIZE, I32, I32, P, P],
    "ncclSend": [P, SIZE, I32, I32, P, P],
    "ncclRecv": [P, SIZE, I32, I32, P, P],
}


def config(blocking: int) -> Config:
    unset = -(2**31)
    rest = (I32 * 13)(*[unset] * 13)
    return Config(ctypes.sizeof(Config), 0xCAFEBEEF, 22700, blocking, rest)


class NcclRank:
    """A rank, its device, a stream and a communicator."""

    def __init__(self, rank: int, ranks: int, folder: Path) -> None:
        self.rank, self.ranks, self.folder = rank, ranks, folder
        self.cuda = Driver(rank)
        self.nccl = ctypes.CDLL("libnccl.so.2")
        self.nccl.ncclGetLastError.restype = ctypes.c_char_p
        self.nccl.ncclCommInitRankConfig.argtypes = [P, I32, UniqueId, I32, P]
        self.comm, self.stream = P(), self.cuda.stream()

    def unique_id(self) -> UniqueId:
        """Rank 0's, that the others read from the folder."""
        path, made = self.folder / "id", UniqueId()
        if self.rank == 0:
            assert self.nccl.ncclGetUniqueId(ctypes.byref(made)) == 0
            path.with_suffix(".new").write_bytes(bytes(made))
            path.with_suffix(".new").rename(path)
            return made
        while not path.exists():
            time.sleep(0.002)
        return UniqueId.from_buffer_copy(path.read_bytes())

    def init(self, blocking: int = 1) -> int:
        """What ncclCommInitRankConfig answers, in the end."""
        chosen, place = config(blocking), ctypes.byref(self.comm)
        identity = self.unique_id()
        init = self.nccl.ncclCommInitRankConfig
        code = int(init(place, self.ranks, identity, self.rank, ctypes.byref(chosen)))
        return self.settled() if code == IN_PROGRESS else code

    def settled(self) -> int:
        """The communicator's error, once nothing is in progress."""
        while self.async_error() == IN_PROGRESS:
            time.sleep(0.001)
        return self.async_error()

    def async_error(self) -> int:
        error = I32()
        assert self.nccl.ncclCommGetAsyncError(self.comm, ctypes.byref(error)) == 0
        return error.value

    def text(self) -> str:
        return (self.nccl.ncclGetLastError(P()) or b"").decode()

    def start(self, name: str, *args: Any, comm: Any = None, stream: int | None = None) -> int:
        """The call's answer."""
        function = getattr(self.nccl, name)
        function.argtypes = SIGNATURES[name]
        where = self.stream if stream is None else stream
        return int(function(*args, comm or self.comm, P(where)))

    def run(self, name: str, *args: Any, **over: Any) -> None:
        """The call, and its end."""
        assert self.start(name, *args, **over) == 0, self.text()
        self.sync()

    def sync(self) -> None:
        self.cuda.sync(self.stream)

    @contextlib.contextmanager
    def group(self) -> Iterator[list[int]]:
        """Calls of one group; the list gets what its end answers."""
        assert self.nccl.ncclGroupStart() == 0
        codes: list[int] = []
        yield codes
        codes.append(int(self.nccl.ncclGroupEnd()))

    def empty(self, count: int) -> int:
        """Memory of so many float32."""
        return self.cuda.alloc(4 * count)

    def meet(self, name: str) -> None:
        """Waits on the host until all ranks have come."""
        (self.folder / f"{name}-{self.rank}").touch()
        while len(list(self.folder.glob(f"{name}-*"))) < self.ranks:
            time.sleep(0.002)
