"""A failure of work that is on a stream already is named at the next call."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import collops
from collops import RecvFrom, SendTo
from collops.testing import run_ranks
from patience import patience

FAILED = "an earlier call failed, {}: HcclGetCommAsyncError returned"


def ones(npu: Any, *counts: int) -> list[Any]:
    """Tensors, made before a call fails: torch makes none once a stream has failed."""
    return [npu.tensor(np.ones(count, np.float32)) for count in counts]


def fails(stream: Any) -> bool:
    """Whether the work of a stream has failed; waits for its end."""
    try:
        stream.synchronize()
    except RuntimeError:
        return True
    return False


def message_of(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    try:
        call(*args, **kwargs)
    except collops.Error as error:
        return error.message
    return "no error"


def check(results: list[tuple[list[bool], list[str]]], *named: str) -> None:
    """All streams of all ranks failed; each message names its calls, whoever found them first."""
    for failed, messages in results:
        assert all(failed)
        for message, calls in zip(messages, named, strict=True):
            assert FAILED.format(calls) in message, messages


def test_the_next_call_names_the_one_that_failed(npu: Any, torch_module: ModuleType) -> None:
    def work(rank: int) -> tuple[list[bool], list[str]]:
        npu.choose(rank)
        comm = collops.init(backend="hccl")
        x, odd = ones(npu, 2, 4 + rank)
        comm.broadcast(x)  # call 1 is right
        torch_module.npu.synchronize()
        comm.all_reduce(odd, out=odd)
        failed = fails(torch_module.npu.current_stream())
        return [failed], [message_of(comm.broadcast, x) for _ in range(2)]

    results = run_ranks(work, 2, timeout=patience(20))
    check([(failed, found[:1]) for failed, found in results], "all_reduce (call 2)")
    assert all("this communicator has ended" in second for _, (_, second) in results)
    assert any("(reported by" not in first for _, (first, _) in results)


def test_calls_that_failed_on_two_streams_are_both_named(
    npu: Any, torch_module: ModuleType
) -> None:
    """The second call is right, but HCCL runs none of a communicator after one that failed."""

    def work(rank: int) -> tuple[list[bool], list[str]]:
        npu.choose(rank)
        comm = collops.init(backend="hccl")
        streams = [torch_module.npu.Stream() for _ in range(2)]
        x, odd = ones(npu, 2, 4 + rank)
        comm.broadcast(x)
        torch_module.npu.synchronize()
        with npu.held(streams[0]):
            with torch_module.npu.stream(streams[0]):
                comm.all_reduce(odd, out=odd)
            with torch_module.npu.stream(streams[1]):
                comm.broadcast(x)
        return [fails(stream) for stream in streams], [message_of(comm.broadcast, x)]

    check(run_ranks(work, 2, timeout=patience(20)), "all_reduce (call 2) or broadcast (call 3)")


def test_each_communicator_names_its_own(npu: Any, torch_module: ModuleType) -> None:
    """The first one's calls are the split, a broadcast and the one that fails."""

    def work(rank: int) -> tuple[list[bool], list[str]]:
        npu.choose(rank)
        first = collops.init(backend="hccl")
        second = first.split(0, rank)
        assert second is not None
        streams = [torch_module.npu.Stream() for _ in range(2)]
        x, odd = ones(npu, 2, 4 + rank)
        for comm in (first, second):
            comm.broadcast(x)
        torch_module.npu.synchronize()
        with npu.held(streams[0]), npu.held(streams[1]):
            with torch_module.npu.stream(streams[0]):
                first.all_reduce(odd, out=odd)
            with torch_module.npu.stream(streams[1]):
                second.broadcast(odd)
        failed = [fails(stream) for stream in streams]
        return failed, [message_of(comm.broadcast, x) for comm in (first, second)]

    check(run_ranks(work, 2, timeout=patience(20)), "all_reduce (call 3)", "broadcast (call 2)")


@pytest.mark.parametrize("batched", [False, True], ids=["send and recv", "exchange"])
def test_a_message_that_failed_is_named(npu: Any, torch_module: ModuleType, batched: bool) -> None:
    """Rank 1 receives more than rank 0 sends, which HCCL finds when it moves the message.

    Messages have no number: they are not counted among the calls, which all ranks make.
    """

    def work(rank: int) -> tuple[list[bool], list[str]]:
        npu.choose(rank)
        comm = collops.init(backend="hccl")
        x, odd = ones(npu, 2, 4 + rank)
        comm.broadcast(x)
        torch_module.npu.synchronize()
        if batched:
            comm.exchange([SendTo(odd, 1) if rank == 0 else RecvFrom(odd, 0)])
        elif rank == 0:
            comm.send(odd, 1)
        else:
            comm.recv(odd, 0)
        return [fails(torch_module.npu.current_stream())], [message_of(comm.broadcast, x)]

    results = run_ranks(work, 2, timeout=patience(20))
    own = ("exchange", "exchange") if batched else ("send", "recv")
    for rank, (failed, [text]) in enumerate(results):  # either may find its own first, or both
        finder = 1 - rank if "(reported by" in text else rank
        check([(failed, [text])], own[finder])
