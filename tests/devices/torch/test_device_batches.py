"""A batch of messages on tensors of devices: what becomes of it when an exception ends it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import collops
from patience import patience
from tests.devices.torch.device_groups import KIND, run_device_group
from tests.torch.groups import default_group

_SLOW = {"COLLOPS_SIM_DELAY_US": "5000"}


def _batch(rank: int, value: float, fails: bool = False) -> list[float]:
    """Both ranks exchange a number; `fails`: the block ends between its two messages."""
    x, out = torch.full((1,), float(value + rank)).to(KIND), torch.zeros(1).to(KIND)
    where = torch.device(KIND, rank)
    with dist.distributed_c10d._coalescing_manager(device=where, async_ops=True) as manager:
        dist.isend(x, 1 - rank)
        if fails:
            raise LookupError("no such row")
        dist.irecv(out, 1 - rank)
    manager.wait()
    return out.tolist()


def _error(call: Any, *args: Any) -> str:
    try:
        return f"no error, {call(*args)}"
    except collops.Error as error:
        return f"{type(error).__name__}: {error.message}"


@pytest.mark.parametrize("check", ["0", "1"])
def test_a_batch_after_one_that_was_left_is_refused_on_all_ranks(check: str) -> None:
    """Without the error, rank 0's next batch would meet the one in which rank 1 still waits."""

    def work(rank: int) -> list[str]:
        assert _batch(rank, 10) == [11 - rank]
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            store.wait(["put"])
            with pytest.raises(LookupError):
                _batch(rank, 20, fails=True)
            found = [_error(_batch, rank, 30), _error(_batch, rank, 40)]
            store.set("refused", "")
            return found
        x = torch.full((1,), 21.0).to(KIND)
        default_group().batch_isend_irecv(["isend"], [x], [0])  # rank 0 does not receive it
        store.set("put", "")
        store.wait(["refused"])
        return [_error(_batch, rank, 30)]

    own, others = run_device_group(work, 2, env={"COLLOPS_CHECK": check}, timeout_s=patience(20))
    lost = "an exception ended a batch of rank 0 before its end: 1 message of it will never be sent"
    assert own[0].startswith(f"AbortedError: {lost}"), own
    assert lost in own[1], own
    assert lost in others[0], others


def test_a_block_that_was_left_without_messages_changes_nothing() -> None:
    def work(rank: int) -> list[float]:
        assert _batch(rank, 10) == [11 - rank]
        where = torch.device(KIND, rank)
        with pytest.raises(LookupError), dist.distributed_c10d._coalescing_manager(device=where):
            raise LookupError("no such row")
        return _batch(rank, 20)

    assert run_device_group(work, 2) == [[21.0], [20.0]]


def test_an_error_within_batch_isend_irecv_ends_all_calls() -> None:
    """The other rank has put its part on a stream, so it must not meet a later batch."""

    def work(rank: int) -> list[str]:
        group, x = default_group(), torch.ones(1).to(KIND)
        assert _batch(rank, 10) == [11 - rank]
        store = dist.distributed_c10d._get_default_store()
        if rank == 1:
            group.batch_isend_irecv(["isend"], [x], [0])
            store.set("put", "")
            store.wait(["failed"])
            return [_error(_batch, rank, 30)]
        store.wait(["put"])
        with pytest.raises(ValueError, match="zip"):
            group.batch_isend_irecv(["irecv", "irecv"], [x], [1, 1])
        store.set("failed", "")
        return [_error(_batch, rank, 30)]

    for [message] in run_device_group(work, 2):
        assert "1 message of it will never be sent or received" in message, message


def test_each_work_of_a_batch_waits_for_it() -> None:
    def work(rank: int) -> list[float]:
        x, out = torch.full((1,), 1.0 + rank).to(KIND), torch.zeros(1).to(KIND)
        where = torch.device(KIND, rank)
        with dist.distributed_c10d._coalescing_manager(device=where, async_ops=True):
            works = [dist.isend(x, 1 - rank), dist.irecv(out, 1 - rank)]
            assert not any(work.is_completed() for work in works)
        works[1].wait()
        return out.tolist()

    assert run_device_group(work, 2, env=_SLOW) == [[2.0], [1.0]]


def test_a_message_of_a_batch_that_was_left_has_an_error() -> None:
    def work(rank: int) -> list[bool]:
        x, where, works = torch.ones(1).to(KIND), torch.device(KIND, rank), []
        with (
            pytest.raises(LookupError),
            dist.distributed_c10d._coalescing_manager(device=where, async_ops=True),
        ):
            works.append(dist.isend(x, 1 - rank))
            raise LookupError("no such row")
        [call] = works
        future = call.get_future()
        early = future.done()
        told = [_error(_batch, rank, 30), _error(call.wait), str(call.exception())]
        with pytest.raises(RuntimeError) as caught:
            future.wait()
        told.append(str(caught.value))
        return [early, *("1 message of it will never be sent" in text for text in told)]

    assert run_device_group(work, 2) == [[False, True, True, True, True]] * 2
