"""Backend nccl on an ncclComm_t of the caller's."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
from gpu_ranks import scatter, scattered

import collops
from collops.testing import run_ranks

SIZES = [3, 5]


def test_an_nccl_comm_of_the_callers(gpu: Any) -> None:
    def work(_: int) -> list[Any]:
        nccl = ctypes.CDLL("libnccl.so.2")
        unique = ctypes.create_string_buffer(128)
        assert nccl.ncclGetUniqueId(unique) == 0
        unique_id = type(
            "UniqueId", (ctypes.Structure,), {"_fields_": [("b", ctypes.c_char * 128)]}
        )
        found: list[Any] = [None] * 2

        def of(rank: int) -> None:
            gpu.choose(rank)
            assert gpu.cuda is not None  # makes the context current
            comm = ctypes.c_void_p()
            made = unique_id.from_buffer_copy(unique.raw)
            assert nccl.ncclCommInitRank(ctypes.byref(comm), 2, made, rank) == 0
            gpu.choose(5)  # the communicator's GPU counts
            assert gpu.cuda is not None
            op = collops.Operation(
                collops.ReduceScatterVParam(
                    rank=-1, rank_size=0, backend="nccl", hccl_comm=comm.value
                )
            )
            gpu.choose(rank)
            found[rank] = scatter(op, gpu, rank, SIZES, "float32")
            del op
            assert nccl.ncclCommDestroy(comm) == 0

        threads = [threading.Thread(target=of, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    [found] = run_ranks(work, 1)
    for rank, got in enumerate(found):
        np.testing.assert_array_equal(got, scattered(rank, SIZES, "float32", "sum"))
