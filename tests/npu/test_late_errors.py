"""A failure of work that is on a stream already is named at the next call."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

import collops
from collops.testing import run_ranks


def test_the_next_call_names_the_one_that_failed(npu: Any, torch_module: ModuleType) -> None:
    def work(rank: int) -> list[str]:
        npu.choose(rank)
        comm = collops.init(backend="hccl")
        # Torch makes no tensors once a stream has failed.
        x, odd = (npu.tensor(np.ones(count, np.float32)) for count in (2, 4 + rank))
        comm.broadcast(x)  # call 1 is right
        torch_module.npu.synchronize()
        comm.all_reduce(odd, out=odd)
        found = []
        try:
            torch_module.npu.current_stream().synchronize()
        except RuntimeError:
            found.append("failed")
        for _ in range(2):
            try:
                comm.broadcast(x)
            except collops.Error as error:
                found.append(error.message)
        return found

    own = "an earlier call failed, AllReduce (call 2): HcclGetCommAsyncError returned"
    results = run_ranks(work, 2, timeout=20)
    for failed, first, second in results:
        assert failed == "failed"
        assert own in first
        assert "the communicator has ended" in second
    assert any("(reported by" not in first for _, first, _ in results)
