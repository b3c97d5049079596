"""Memory of simulated GPUs that other processes use, by IPC handles and by file descriptors."""

from __future__ import annotations

import ctypes
import os
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collops.testing import RankErrors
from tests.gpu.simulated.simulated_driver import (
    INVALID_CONTEXT,
    INVALID_HANDLE,
    INVALID_VALUE,
    PEER_UNSUPPORTED,
    U32,
    U64,
    Driver,
    P,
)

COUNT = 300
LAZY = U32(1)
GRANULE = 2 << 20


class Handle(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * 64),)


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", ctypes.c_int * 2),
        ("unused", ctypes.c_uint64 * 2),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", ctypes.c_int * 2), ("rights", ctypes.c_int))


def wait_for(path: Path) -> bytes:
    while not path.exists():
        time.sleep(0.002)
    return path.read_bytes()


def publish(path: Path, content: bytes) -> None:
    path.with_suffix(".new").write_bytes(content)
    path.with_suffix(".new").rename(path)


def open_handle(cuda: Driver, handle: Handle, flags: Any = LAZY) -> tuple[int, int]:
    pointer = U64()
    cuda.cuda.cuIpcOpenMemHandle_v2.argtypes = [P, Handle, U32]
    return cuda.code("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), handle, flags), pointer.value


def share(cuda: Driver, rank: int, folder: Path, then: Any) -> Any:
    """Rank 0 shares numbers; what rank 1 does with the handle is the result there."""
    numbers = np.arange(COUNT, dtype=np.int32)
    if rank == 0:
        handle, address = Handle(), cuda.put(numbers)
        cuda.call("cuIpcGetMemHandle", ctypes.byref(handle), U64(address))
        publish(folder / "handle", bytes(handle))
        wait_for(folder / "done")
        return open_handle(cuda, handle)[0], cuda.read(address, COUNT, np.int32)
    handle = Handle.from_buffer_copy(wait_for(folder / "handle"))
    try:
        return then(cuda, handle)
    finally:
        publish(folder / "done", b"")


def test_another_process_reads_and_writes(on_gpus: Any, tmp_path: Path) -> None:
    def then(cuda: Driver, handle: Handle) -> Any:
        code, address = open_handle(cuda, handle)
        again, same = open_handle(cuda, handle)
        found = cuda.read(address, COUNT, np.int32)
        cuda.write(address, found + 5)
        closes = [cuda.code("cuIpcCloseMemHandle", U64(address)) for _ in range(3)]
        gone = cuda.copy(cuda.alloc(4), address, 4)
        return code, again, same == address, (found == np.arange(COUNT)).all(), closes, gone

    owner, user = on_gpus(lambda cuda, rank: share(cuda, rank, tmp_path, then), 2)
    assert user == (0, 0, True, True, [0, 0, INVALID_VALUE], INVALID_VALUE)
    assert owner[0] == INVALID_CONTEXT  # in its own process
    assert (owner[1] == np.arange(COUNT) + 5).all()


def test_wrong_opens(on_gpus: Any, tmp_path: Path) -> None:
    def then(cuda: Driver, handle: Handle) -> Any:
        return open_handle(cuda, Handle())[0], open_handle(cuda, handle, U32(0))[0]

    _, user = on_gpus(lambda cuda, rank: share(cuda, rank, tmp_path, then), 2)
    assert user == (INVALID_HANDLE, INVALID_VALUE)


@pytest.mark.parametrize(
    ("apart", "code"), [("1", PEER_UNSUPPORTED), ("2-3,1-0", PEER_UNSUPPORTED), ("0-2,1-3", 0)]
)
def test_no_peers(on_gpus: Any, tmp_path: Path, apart: str, code: int) -> None:
    """Between all devices, or between those of a pair."""

    def then(cuda: Driver, handle: Handle) -> int:
        return open_handle(cuda, handle)[0]

    env = {"COLLOPS_SIM_NO_PEERS": apart}
    results = on_gpus(lambda cuda, rank: share(cuda, rank, tmp_path, then), 2, **env)
    assert results[1] == code


def test_closing_what_a_stream_will_use_is_a_mistake(on_gpus: Any, tmp_path: Path) -> None:
    def then(cuda: Driver, handle: Handle) -> Any:
        stream, address = cuda.stream(), open_handle(cuda, handle)[1]
        with cuda.held(stream):
            assert cuda.fill(address, 0, 4, stream) == 0
            code = cuda.code("cuIpcCloseMemHandle", U64(address))
        cuda.sync(stream)
        return code, cuda.mistakes()

    results = on_gpus(lambda cuda, rank: share(cuda, rank, tmp_path, then), 2)
    assert results[1] == (INVALID_VALUE, 1)


@pytest.mark.parametrize("closes", [True, False])
def test_freeing_what_another_process_has_open_is_a_mistake(
    on_gpus: Any, tmp_path: Path, closes: bool
) -> None:
    def work(cuda: Driver, rank: int) -> Any:
        if rank == 0:
            handle, address = Handle(), cuda.alloc(64)
            cuda.call("cuIpcGetMemHandle", ctypes.byref(handle), U64(address))
            publish(tmp_path / "handle", bytes(handle))
            wait_for(tmp_path / "opened")
            code = cuda.code("cuMemFree_v2", U64(address))
            publish(tmp_path / "freed", b"")
            return code, cuda.mistakes()
        address = open_handle(cuda, Handle.from_buffer_copy(wait_for(tmp_path / "handle")))[1]
        if closes:
            cuda.call("cuIpcCloseMemHandle", U64(address))
        publish(tmp_path / "opened", b"")
        wait_for(tmp_path / "freed")
        return None

    assert on_gpus(work, 2)[0] == ((0, 0) if closes else (INVALID_VALUE, 1))


def create(cuda: Driver, size: int = GRANULE) -> int:
    handle = U64()
    properties = Properties(1, 1, (ctypes.c_int * 2)(1, cuda.device))
    place = ctypes.byref(properties)
    cuda.call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), place, U64(0))
    return handle.value


def map_memory(cuda: Driver, handle: int, access: bool = True) -> int:
    address, size = U64(), ctypes.c_size_t(GRANULE)
    cuda.call("cuMemAddressReserve", ctypes.byref(address), size, P(0), U64(0), U64(0))
    cuda.call("cuMemMap", address, size, P(0), U64(handle), U64(0))
    wished = Access((ctypes.c_int * 2)(1, cuda.device), 3)
    if access:
        cuda.call("cuMemSetAccess", address, size, ctypes.byref(wished), ctypes.c_size_t(1))
    return address.value


def test_a_file_descriptor_carries_memory_to_another_process(on_gpus: Any, tmp_path: Path) -> None:
    name = str(tmp_path / "socket")

    def work(cuda: Driver, rank: int) -> Any:
        if rank == 0:
            handle, descriptor = create(cuda), ctypes.c_int()
            cuda.call(
                "cuMemExportToShareableHandle", ctypes.byref(descriptor), U64(handle), 1, U64(0)
            )
            address = map_memory(cuda, handle)
            cuda.write(address, np.arange(COUNT, dtype=np.int32))
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(name)
                listener.listen()
                guest, _ = listener.accept()
                with guest:
                    socket.send_fds(guest, [b"x"], [descriptor.value])
                    guest.recv(1)
            return cuda.read(address, COUNT, np.int32)
        with socket.socket(socket.AF_UNIX) as guest:
            while guest.connect_ex(name) != 0:
                time.sleep(0.002)
            descriptors = socket.recv_fds(guest, 1, 1)[1]
            imported = U64()
            place = P(descriptors[0])
            cuda.call("cuMemImportFromShareableHandle", ctypes.byref(imported), place, 1)
            os.close(descriptors[0])
            address = map_memory(cuda, imported.value)
            found = cuda.read(address, COUNT, np.int32)
            cuda.write(address, found * 2)
            guest.send(b"x")
        return found

    written, found = on_gpus(work, 2)
    assert (found == np.arange(COUNT)).all()
    assert (written == 2 * np.arange(COUNT)).all()


def test_wrong_virtual_memory(on_gpu: Any) -> None:
    def work(cuda: Driver) -> dict[str, int]:
        size, handle = ctypes.c_size_t(GRANULE), create(cuda)
        dark = map_memory(cuda, handle, access=False)
        lit = map_memory(cuda, create(cuda))
        odd = Properties(1, 1, (ctypes.c_int * 2)(1, 0))
        answers = {
            "no access": cuda.fill(dark, 0, 8),
            "mapped twice": cuda.code("cuMemMap", U64(lit), size, P(0), U64(handle), U64(0)),
            "addresses still mapped": cuda.code("cuMemAddressFree", U64(lit), size),
            "freed as an allocation": cuda.code("cuMemFree_v2", U64(lit)),
            "half a granule": cuda.code(
                "cuMemCreate", ctypes.byref(U64()), P(GRANULE // 2), ctypes.byref(odd), U64(0)
            ),
            "unmapped": cuda.code("cuMemUnmap", U64(lit), size),
        }
        answers["after that"] = cuda.fill(lit, 0, 8)
        answers["addresses"] = cuda.code("cuMemAddressFree", U64(lit), size)
        return answers

    assert on_gpu(work) == {
        "no access": INVALID_VALUE,
        "mapped twice": INVALID_VALUE,
        "addresses still mapped": INVALID_VALUE,
        "freed as an allocation": INVALID_VALUE,
        "half a granule": INVALID_VALUE,
        "unmapped": 0,
        "after that": INVALID_VALUE,
        "addresses": 0,
    }


def test_a_kernel_that_uses_memory_without_access_ends_its_process(on_gpu: Any, capfd: Any) -> None:
    class WaitArgs(ctypes.Structure):
        _fields_ = (("signal", P), ("value", ctypes.c_uint32))

    def work(cuda: Driver) -> None:
        kernel, stream = cuda.kernel(cuda.load(), "sim_wait"), cuda.stream()
        behind = cuda.alloc(1024) + 1024
        assert cuda.launch(kernel, WaitArgs(behind, 0), blocks=1, stream=stream) == 0
        cuda.sync(stream)

    with pytest.raises(RankErrors, match="SIGSEGV"):
        on_gpu(work)
    assert "memory that is not there or not accessible" in capfd.readouterr().err
