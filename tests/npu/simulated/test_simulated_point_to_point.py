"""HcclSend, HcclRecv and HcclBatchSendRecv of the simulated libhccl."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.npu.simulated.simulated_rank import E_PARA, E_PTR, RECV, SEND, Rank, items, type_of

INT32 = type_of(np.int32)
LARGE = 400_000  # more than a socket holds


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_a_ring_of_sends(on_ranks: Any, ranks: int) -> None:
    """Even ranks send first, then the others; the last of an odd ring sends first, too."""

    def work(one: Rank) -> int:
        following, before = (one.rank + 1) % ranks, (one.rank - 1) % ranks
        x = one.device(np.full(LARGE, one.rank, np.int32))
        out = one.empty(LARGE, np.int32)
        calls = [("HcclSend", x, following), ("HcclRecv", out, before)]
        for name, memory, peer in calls if one.rank % 2 == 0 else calls[::-1]:
            assert one.start(name, memory, LARGE, INT32, peer) == 0
        assert one.sync() == 0
        [value] = set(out.read().tolist())
        return int(value)

    assert on_ranks(work, ranks) == [(r - 1) % ranks for r in range(ranks)]


def test_a_send_ends_when_the_peer_has_received(on_ranks: Any) -> None:
    def work(one: Rank) -> tuple[int, int]:
        x = one.device(np.zeros(1, np.int32))
        if one.rank == 1:
            one.acl.SimHoldStream(one.stream)
        assert one.start("HcclRecv" if one.rank else "HcclSend", x, 1, INT32, 1 - one.rank) == 0
        early = one.acl.aclrtSynchronizeStreamWithTimeout(one.stream, 200)
        one.meet("waited")
        if one.rank == 1:
            one.acl.SimReleaseStream(one.stream)
        return early, one.sync()

    assert on_ranks(work, 2) == [(507046, 0)] * 2


def test_pairs_keep_their_order(on_ranks: Any) -> None:
    def work(one: Rank) -> list[int]:
        peer = 1 - one.rank
        sent = [one.device(np.array([10 * i], np.int32)) for i in range(4)]
        out = [one.empty(1, np.int32) for _ in range(4)]
        for i in range(4):
            if one.rank == i % 2:
                assert one.start("HcclSend", sent[i], 1, INT32, peer) == 0
            else:
                assert one.start("HcclRecv", out[i], 1, INT32, peer) == 0
        assert one.sync() == 0
        return [int(out[i].read()[0]) for i in range(4) if one.rank != i % 2]

    assert on_ranks(work, 2) == [[10, 30], [0, 20]]


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_a_batch_in_any_order_does_not_block(on_ranks: Any, ranks: int) -> None:
    def work(one: Rank) -> list[int]:
        others = [r for r in range(ranks) if r != one.rank]
        out = {r: one.empty(LARGE // 8, np.int32) for r in others}
        sent = {r: one.device(np.full(LARGE // 8, 100 * one.rank + r, np.int32)) for r in others}
        transfers = [(SEND, sent[r], r) for r in others] + [(RECV, out[r], r) for r in others]
        np.random.default_rng(one.rank).shuffle(transfers)
        made = items(*transfers)
        assert one.start("HcclBatchSendRecv", ctypes.addressof(made), len(made)) == 0
        assert one.sync() == 0
        return [int(value) for r in others for value in set(out[r].read().tolist())]

    want = [[100 * r + me for r in range(ranks) if r != me] for me in range(ranks)]
    assert on_ranks(work, ranks) == want


def test_mistakes_in_the_arguments(on_ranks: Any) -> None:
    def work(one: Rank) -> list[tuple[int, str]]:
        peer, x, y = 1 - one.rank, one.device(np.zeros(2, np.int32)), one.empty(2, np.int32)
        host = np.zeros(2, np.int32)
        twice = items((SEND, x, peer), (RECV, y, peer), (SEND, y, peer))
        twice_received = items((RECV, x, peer), (RECV, y, peer))
        neither = items((2, x, peer))
        batch = "HcclBatchSendRecv"
        calls: list[tuple[Any, ...]] = [
            ("HcclSend", x, 2, INT32, one.rank),
            ("HcclRecv", x, 2, INT32, 2),
            ("HcclSend", host, 2, INT32, peer),
            ("HcclSend", x, 3, INT32, peer),
            ("HcclSend", 0, 2, INT32, peer),
            (batch, ctypes.addressof(twice), 3),
            (batch, ctypes.addressof(twice_received), 2),
            (batch, ctypes.addressof(neither), 1),
            (batch, 0, 1),
            (batch, ctypes.addressof(twice), 0),
        ]
        return [(one.start(*call), one.text()) for call in calls]

    for found in on_ranks(work, 2):
        codes, texts = zip(*found, strict=True)
        assert codes == (*[E_PARA] * 4, E_PTR, *[E_PARA] * 3, E_PTR, E_PARA)
        wanted = [
            "the other rank is the own one",
            "there is no rank 2",
            "sendBuf: the elements do not lie in this device's memory",
            "sendBuf: the elements do not lie in this device's memory",
            "sendBuf is null",
            "two items send to one rank",
            "two items receive from one rank",
            "an item neither sends nor receives",
            "a list is null",
            "there are no items",
        ]
        for text, want in zip(texts, wanted, strict=True):
            assert want in text


def failing(one: Rank, *calls: tuple[Any, ...]) -> bool:
    """Whether the stream fails after calls that were all taken."""
    for call in calls:
        assert one.start(*call) == 0
    return one.sync() != 0 and one.async_error() != 0


@pytest.mark.parametrize("mistake", ["both send", "count", "type", "batch and send", "collective"])
def test_calls_that_do_not_match_fail_on_both(on_ranks: Any, mistake: str) -> None:
    def work(one: Rank) -> bool:
        peer, x = 1 - one.rank, one.device(np.zeros(8, np.int32))
        first: tuple[Any, ...] = ("HcclSend", x, 4, INT32, peer)
        second: tuple[Any, ...] = ("HcclRecv", x, 4, INT32, peer)
        batch = items((RECV, one.empty(4, np.int32), peer))
        if mistake == "both send":
            second = first
        elif mistake == "count":
            second = ("HcclRecv", x, 5, INT32, peer)
        elif mistake == "type":
            second = ("HcclRecv", x, 4, type_of(np.float32), peer)
        elif mistake == "batch and send":
            second = ("HcclBatchSendRecv", ctypes.addressof(batch), 1)
        else:
            second = ("HcclBroadcast", x, 4, INT32, 0)
        return failing(one, second if one.rank else first)

    assert on_ranks(work, 2) == [True] * 2


def test_a_peer_that_is_gone_is_an_error(on_ranks: Any) -> None:
    def work(one: Rank) -> bool:
        if one.rank == 1:
            return one.hccl.HcclCommDestroy(one.comm) == 0
        x = one.device(np.zeros(1, np.int32))
        return failing(one, ("HcclRecv", x, 1, INT32, 1))

    assert on_ranks(work, 2) == [True] * 2
