"""Operations are made in any order; HCCL connects a domain's ranks in its first call.

And then in the first call of each of its functions, for which the ranks meet on the host.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import collops
from collops import RecvFrom, SendTo
from collops.testing import run_ranks
from patience import patience
from tests.npu.npu_ranks import error_of

Message = Callable[[collops.Communicator, Any], Any]


def exchanged(comm: collops.Communicator, x: Any) -> Any:
    """Between ranks 0 and 2."""
    peer, out = 2 - comm.rank, x + 0
    comm.exchange([SendTo(x, peer), RecvFrom(out, peer)])
    return out


# Calls of which rank 2 is late in each; rank 1 has no part in messages.
CALLS: dict[str, Message] = {
    "HcclAllReduce": lambda comm, x: comm.all_reduce(x),
    "HcclAllGather": lambda comm, x: comm.all_gather(x),
    "HcclReduceScatterV": lambda comm, x: comm.reduce_scatterv(x, [2, 0, 1]),
    "HcclSend": lambda comm, x: comm.send(x, 2) if comm.rank == 0 else comm.recv(x, 0),
    "HcclBatchSendRecv": exchanged,
}
MESSAGES = ("HcclSend", "HcclBatchSendRecv")


def late_calls(npu: Any, names: list[str], late_s: float) -> list[Any]:
    """What each call returns on each of three ranks, or how it fails."""

    def work(rank: int) -> list[Any]:
        npu.choose(rank)
        comm = collops.init(backend="hccl")
        results: list[Any] = []
        for name in names:
            if rank == 1 and name in MESSAGES:
                continue
            x = npu.tensor(np.arange(3, dtype=np.float32) + rank)
            time.sleep(late_s * (rank == 2))
            try:
                out = CALLS[name](comm, x)
                results.append(None if out is None else npu.array(out).reshape(-1).tolist())
            except collops.Error as error:
                results.append((error.code, error.message))
        return results

    return run_ranks(work, 3, env={"HCCL_CONNECT_TIMEOUT": str(patience(0.5))})


def test_ranks_meet_before_the_first_call_of_each_function(npu: Any) -> None:
    """Where HCCL itself would not wait for so long."""
    zero, one, two = late_calls(npu, list(CALLS), patience(1.0))
    everything = [0.0, 1.0, 2.0, 1.0, 2.0, 3.0, 2.0, 3.0, 4.0]
    assert zero == [[3.0, 6.0, 9.0], everything, [3.0, 6.0], None, [2.0, 3.0, 4.0]]
    assert one == [[3.0, 6.0, 9.0], everything, []]
    assert two == [[3.0, 6.0, 9.0], everything, [9.0], [0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]


@pytest.mark.parametrize("name", ["HcclAllReduce", "HcclSend"])
def test_hccl_waits_alone_if_told_so(npu: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLLOPS_HCCL_MEET", "0")
    [[code, message]] = late_calls(npu, [name], patience(1.0))[0]
    assert code == 100
    assert f"{name} returned 9 (HCCL_E_TIMEOUT): EI9999: simulated CANN: EI0006: rank" in message


@pytest.mark.parametrize("name", ["HcclAllReduce", "HcclSend"])
def test_who_does_not_come_is_named(npu: Any, name: str) -> None:
    def work(rank: int) -> str:
        npu.choose(rank)
        collops.init(backend="hccl")
        end, said = collops.init(comm_domain="end"), ""
        if rank == 0:
            comm = collops.init(backend="hccl", timeout_s=1)
            x = npu.tensor(np.ones(3, np.float32))
            said = error_of(lambda: CALLS[name](comm, x)).message
        end.barrier()
        return said

    said = run_ranks(work, 3)[0]
    assert "timed out after 1 s" in said, said
    assert "rank 2 (pid" in said, said


def test_ctrl_c_ends_the_wait_for_a_message(npu: Any) -> None:
    def work(rank: int) -> None:
        npu.choose(rank)
        comm = collops.init(backend="hccl")
        out = npu.tensor(np.ones(3, np.float32))
        if rank == 1:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                comm.recv(out, 0)
        else:
            with pytest.raises(collops.Error):  # the group has ended
                while True:
                    comm.check()

    run_ranks(work, 2, timeout=patience(20))


def test_different_first_calls_are_named(npu: Any) -> None:
    """As the ranks meet, also without COLLOPS_CHECK=1."""

    def work(rank: int) -> str:
        npu.choose(rank)
        comm = collops.init(backend="hccl")
        x = npu.tensor(np.ones(2, np.float32))
        sizes = [2, 2] if rank == 0 else [1, 2]
        return error_of(lambda: comm.all_gatherv(x, sizes)).message

    for text in run_ranks(work, 2):
        assert "HCCL's function is HcclAllGather on rank 0" in text, text
        assert "HcclAllGatherV on rank 1" in text, text


def operations(rank: int, names: list[str]) -> dict[str, collops.Operation]:
    return {
        name: collops.Operation(collops.AllReduceParam(rank=rank, rank_size=2, comm_domain=name))
        for name in names
    }


def test_operations_are_made_in_any_order(npu: Any) -> None:
    def work(rank: int) -> list[list[float]]:
        npu.choose(rank)
        made = operations(rank, ["left", "right"] if rank == 0 else ["right", "left"])
        x = npu.tensor(np.arange(3, dtype=np.float32) + rank)
        outs = [made[name].forward([x])[0] for name in ("left", "right", "left")]
        return [npu.array(out).tolist() for out in outs]

    assert run_ranks(work, 2) == [[[1.0, 3.0, 5.0]] * 3] * 2


def test_first_calls_in_two_orders_end_by_a_time_out_that_names_both_domains(npu: Any) -> None:
    def work(rank: int) -> str:
        npu.choose(rank)
        made = operations(rank, ["left", "right"])
        first = made["left" if rank == 0 else "right"]
        x = npu.tensor(np.ones(3, np.float32))
        try:
            first.forward([x])
        except collops.RankTimeoutError as error:
            return error.message
        except collops.PeerLostError as error:
            return f"the other rank was first: {error.message}"
        return "no error"

    texts = run_ranks(work, 2, env={"COLLOPS_TIMEOUT_S": "1"})
    order = "ranks that share several make their first calls in the same order"
    named = [
        f'this is comm_domain "left", and "right" of this rank has not met either: {order}',
        f'this is comm_domain "right", and "left" of this rank has not met either: {order}',
    ]
    late = [text for text in texts if not text.startswith("the other rank was first")]
    assert late
    assert all(any(line in text for line in named) for text in late)
