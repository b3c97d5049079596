"""Backends nccl and cuda: a captured call that is replayed ends when one of its ranks is lost."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import RankErrors, run_ranks
from patience import patience
from tests.gpu.gpu_ranks import begins, numbers

COUNTS = np.array([3000, 3000], np.int64)


@pytest.mark.parametrize("backend", ["nccl", "cuda"])
def test_a_replay_ends_when_a_rank_dies(gpu: Any, backend: str) -> None:
    """No event of ours lies behind a replay, so it is not known whether one is under way. NCCL does
    not end its communicator as long as the graph exists, but close() does not wait for that."""

    def work(rank: int) -> None:
        gpu.choose(rank)
        comm = collops.init(rank, 2, backend=backend, comm_domain="lost", timeout_s=patience(60))
        op = collops.Operation(
            collops.AllGatherVParam(rank=rank, rank_size=2, backend=backend, comm_domain="lost")
        )
        stream, x = gpu.stream(), gpu.tensor(numbers(rank, 3000, "float32"))
        out, y = gpu.poisoned((6000,), x), np.empty(6000, np.float16)
        inputs = [x, COUNTS[rank : rank + 1], COUNTS, begins(COUNTS), y]
        op.get_workspace_size(inputs, [out])
        op.execute(inputs, [out], stream=stream)  # connects
        with gpu.captured(stream) as graph:
            op.execute(inputs, [out], stream=stream)
        graph.replay(stream)
        stream.synchronize()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        graph.replay(stream)
        stream.synchronize()  # the watcher aborts
        with pytest.raises(collops.PeerLostError, match="rank 1"):
            op.execute(inputs, [out], stream=stream)
        comm.close()
        graph.destroy()

    with pytest.raises(RankErrors) as errors:
        run_ranks(work, 2)
    assert list(errors.value.errors) == [1], errors.value
