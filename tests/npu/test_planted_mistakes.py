"""Mistakes of a caller of HCCL, made on purpose: the simulator finds each of them.

The calls go to the simulated libhccl itself, as collops makes them but for the one mistake.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest

from collops.testing import run_ranks

INT16, FLOAT32, INT64 = 1, 4, 5
SUM, PRODUCT = 0, 1
E_PARA, E_INTERNAL, E_NOT_SUPPORT = 1, 4, 5
NO_CONTEXT, STREAM_OF_ANOTHER = 107002, 107003
WIDTH = 8
ROWS = (2, 3)


class Caller:
    """One rank's communicator and an AllGatherV of whole rows on it."""

    def __init__(self, npu: Any, torch: Any, rank: int, folder: Any) -> None:
        npu.choose(rank)
        dist = torch.distributed
        store = f"file://{folder}/store"
        dist.init_process_group("hccl", init_method=store, rank=rank, world_size=2)
        backend = dist.group.WORLD._get_backend(torch.device("npu"))
        self.comm = ctypes.c_void_p(backend.get_hccl_comm(rank))
        self.rank, self.npu, self.torch = rank, npu, torch
        self.hccl = npu.open_library("libhccl.so")
        self.acl = npu.open_library("libascendcl.so")
        self.acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
        self.counts = np.array(ROWS, np.uint64) * WIDTH
        self.x = npu.tensor(np.full((ROWS[rank], WIDTH), rank + 1, np.float32))
        self.out = npu.poisoned((sum(ROWS), WIDTH), self.x)

    def stream(self) -> ctypes.c_void_p:
        """Torch's stream of this rank's NPU."""
        return ctypes.c_void_p(self.torch.npu.current_stream(self.rank).npu_stream)

    def scatter(self, dtype: int = FLOAT32, reduction: int = SUM) -> int:
        """HcclReduceScatterV's answer to one row for each rank."""
        counts, displs = np.array([[WIDTH, WIDTH], [0, WIDTH]], np.uint64)
        return int(
            self.hccl.HcclReduceScatterV(
                ctypes.c_void_p(self.x.data_ptr()),
                ctypes.c_void_p(counts.ctypes.data),
                ctypes.c_void_p(displs.ctypes.data),
                ctypes.c_void_p(self.out.data_ptr()),
                ctypes.c_uint64(WIDTH),
                dtype,
                reduction,
                self.comm,
                self.stream(),
            )
        )

    def gather(
        self, counts: Any = None, send: int = 0, send_count: int = -1, dtype: int = FLOAT32
    ) -> int:
        """HcclAllGatherV's result; arguments that are not given are right."""
        counts = self.counts if counts is None else counts
        displs = np.array([0, counts[0]], np.uint64)
        return int(
            self.hccl.HcclAllGatherV(
                ctypes.c_void_p(send or self.x.data_ptr()),
                ctypes.c_uint64(int(counts[self.rank]) if send_count < 0 else send_count),
                ctypes.c_void_p(self.out.data_ptr()),
                ctypes.c_void_p(counts.ctypes.data),
                ctypes.c_void_p(displs.ctypes.data),
                dtype,
                self.comm,
                self.stream(),
            )
        )

    def recent_error(self) -> str:
        """CANN's text of the last failure."""
        return (self.acl.aclGetRecentErrMsg() or b"").decode()

    def is_right(self) -> bool:
        """Whether the output is right."""
        want = np.repeat([1, 2], ROWS)[:, None] * np.ones(WIDTH)
        return bool((self.npu.array(self.out) == want).all())


def run(npu: Any, torch: Any, folder: Any, work: Any) -> list[Any]:
    return run_ranks(lambda rank: work(Caller(npu, torch, rank, folder)), 2)


@pytest.fixture
def ranks(npu: Any, torch_module: Any, tmp_path: Any) -> Any:
    return lambda work: run(npu, torch_module, tmp_path, work)


def test_the_right_call_passes(ranks: Any) -> None:
    assert ranks(lambda caller: (caller.gather(), caller.is_right())) == [(0, True)] * 2


def test_counts_in_rows_leave_a_wrong_result(ranks: Any) -> None:
    def work(caller: Caller) -> tuple[int, bool]:
        return caller.gather(np.array(ROWS, np.uint64)), caller.is_right()

    assert ranks(work) == [(0, False)] * 2


def test_counts_in_bytes_leave_a_wrong_result(ranks: Any) -> None:
    """Torch's allocator hands out large pieces, so the end of the memory is not always reached."""

    def work(caller: Caller) -> tuple[int, bool]:
        return caller.gather(caller.counts * 4), caller.is_right()

    assert ranks(work) == [(0, False)] * 2


def test_counts_past_the_memory_are_refused(ranks: Any) -> None:
    def work(caller: Caller) -> tuple[int, str]:
        return caller.gather(caller.counts * 2**20), caller.recent_error()

    for code, text in ranks(work):
        assert code == E_PARA
        assert "the elements do not lie in this device's memory" in text


def test_a_send_count_that_contradicts_recv_counts_is_refused(ranks: Any) -> None:
    def work(caller: Caller) -> tuple[int, str]:
        return caller.gather(send_count=ROWS[caller.rank]), caller.recent_error()

    for rank, (code, text) in enumerate(ranks(work)):
        assert code == E_PARA
        assert f"the own count is {ROWS[rank]} but the list says {ROWS[rank] * WIDTH}" in text


def test_a_host_pointer_is_refused(ranks: Any) -> None:
    def work(caller: Caller) -> tuple[int, str]:
        host = np.ones((ROWS[caller.rank], WIDTH), np.float32)
        return caller.gather(send=host.ctypes.data), caller.recent_error()

    for code, text in ranks(work):
        assert code == E_PARA
        assert "sendBuf: the elements do not lie in this device's memory" in text


def test_counts_that_change_before_the_stream_comes_are_found(
    npu: Any, torch_module: Any, tmp_path: Any
) -> None:
    def work(rank: int) -> int:
        caller = Caller(npu, torch_module, rank, tmp_path)
        counts = caller.counts.copy()
        stream = torch_module.npu.current_stream(rank)
        stream.synchronize()
        with npu.held(stream):
            code = caller.gather(counts)
            counts[:] = 0
        with pytest.raises(RuntimeError, match="synchronize"):
            stream.synchronize()
        return code

    assert run_ranks(work, 2, env={"COLLOPS_SIM_LATE_COUNTS": "1"}) == [0] * 2


def test_calls_out_of_order_fail_on_both(ranks: Any) -> None:
    def work(caller: Caller) -> tuple[int, int, bool]:
        usual, swapped = caller.counts, caller.counts.copy()
        swapped[1] -= 1
        first, second = (usual, swapped) if caller.rank == 0 else (swapped, usual)
        codes = caller.gather(first), caller.gather(second)
        with pytest.raises(RuntimeError, match="synchronize"):
            caller.is_right()
        error = ctypes.c_int()
        caller.hccl.HcclGetCommAsyncError(caller.comm, ctypes.byref(error))
        return *codes, error.value != 0

    assert ranks(work) == [(0, 0, True)] * 2


def test_types_and_reductions_that_are_not_documented_are_refused(ranks: Any) -> None:
    def work(caller: Caller) -> list[int]:
        gathers = [caller.gather(dtype=dtype) for dtype in (INT16, INT64)]
        scatters = [caller.scatter(INT64), caller.scatter(reduction=PRODUCT)]
        return gathers + scatters + [caller.scatter(INT16)]

    assert ranks(work) == [[E_NOT_SUPPORT] * 4 + [0]] * 2


def test_a_gather_in_place_is_refused(ranks: Any) -> None:
    def work(caller: Caller) -> tuple[int, str]:
        return caller.gather(send=caller.out.data_ptr()), caller.recent_error()

    for code, text in ranks(work):
        assert code == E_PARA
        assert "recvBuf is sendBuf" in text


def test_another_npu_than_the_communicators_is_refused(ranks: Any) -> None:
    def work(caller: Caller) -> tuple[list[int], bool]:
        stream, event = caller.stream(), ctypes.c_void_p()
        out = ctypes.c_void_p(caller.out.data_ptr())
        caller.npu.choose(3)
        assert caller.acl.aclrtCreateEvent(ctypes.byref(event)) == 0
        codes = [
            caller.gather(),
            caller.hccl.HcclCommDestroy(caller.comm),
            caller.acl.aclrtRecordEvent(event, stream),
            caller.acl.aclrtMemsetAsync(out, ctypes.c_size_t(4), 0, ctypes.c_size_t(4), stream),
        ]
        caller.npu.choose(caller.rank)
        assert caller.acl.aclrtRecordEvent(event, stream) == 0
        return codes, caller.gather() == 0 and caller.is_right()

    refused = [E_INTERNAL, E_INTERNAL, STREAM_OF_ANOTHER, STREAM_OF_ANOTHER]
    assert ranks(work) == [(refused, True)] * 2


def test_a_thread_without_an_npu_is_refused(ranks: Any) -> None:
    def work(caller: Caller) -> list[int]:
        event, status = ctypes.c_void_p(), ctypes.c_int()
        out, four = ctypes.c_void_p(caller.out.data_ptr()), ctypes.c_size_t(4)
        assert caller.acl.aclrtCreateEvent(ctypes.byref(event)) == 0
        stream = caller.stream()
        calls = [
            lambda: caller.acl.aclrtGetDevice(ctypes.byref(status)),
            lambda: caller.acl.aclrtMalloc(ctypes.byref(ctypes.c_void_p()), four, 0),
            lambda: caller.acl.aclrtCreateEvent(ctypes.byref(ctypes.c_void_p())),
            lambda: caller.acl.aclrtRecordEvent(event, stream),
            lambda: caller.acl.aclrtQueryEventStatus(event, ctypes.byref(status)),
            lambda: caller.acl.aclrtDestroyEvent(event),
            lambda: caller.acl.aclrtMemsetAsync(out, four, 0, four, stream),
            lambda: caller.hccl.HcclCommDestroy(caller.comm),
        ]
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.extend(call() for call in calls))
        thread.start()
        thread.join()
        return codes

    assert ranks(work) == [[NO_CONTEXT] * 7 + [E_INTERNAL]] * 2
