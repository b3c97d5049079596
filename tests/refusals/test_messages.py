"""A wrong message is an error on its rank and on its peer, and on no other rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import collops
from collops import RecvFrom, SendTo
from collops.testing import run_ranks
from patience import patience

Comm = Any  # a collops.Communicator, to which wrong things are passed
Call = Callable[[Comm], Any]
X = np.arange(6, dtype=np.float32)


def read_only() -> Any:
    array = np.empty(6, np.float32)
    array.flags.writeable = False
    return array


def halves(comm: Comm, overlap: int) -> Any:
    memory = np.zeros(12, np.float32)
    first, second = memory[:6], memory[6 - overlap : 12 - overlap]
    return comm.exchange([RecvFrom(first, 0, 5), RecvFrom(second, 0, 6)])


def ending(call: Callable[[], Any]) -> tuple[int, str]:
    """Code and message of a call that fails; 0 of one that does not."""
    try:
        call()
    except collops.Error as error:
        return error.code, error.message
    return 0, ""


# What rank 1 does wrong, its code, a part of its message; what rank 0 does meanwhile.
TOLD: list[tuple[str, Call, int, str, Call]] = [
    (
        "strides",
        lambda c: c.send(X[::2], 0),
        14,
        "send: x is not contiguous",
        lambda c: c.recv(X.copy()),
    ),
    (
        "a list",
        lambda c: c.send([1], 0, 3),
        1,
        "send: x must be a numpy",
        lambda c: c.recv(X.copy(), 1, 3),
    ),
    (
        "objects",
        lambda c: c.send(np.array([None]), 0),
        13,
        "references",
        lambda c: c.recv(X.copy(), 1),
    ),
    (
        "read only",
        lambda c: c.recv(read_only(), 0),
        14,
        "recv: out is read-only",
        lambda c: c.send(X, 1),
    ),
    (
        "no tensor",
        lambda c: c.recv(b"12", 0, 4),
        1,
        "recv: out must be a",
        lambda c: c.send(X, 1, 4),
    ),
    (
        "order",
        lambda c: c.recv(X[::-1], 0),
        14,
        "recv: out is not contiguous",
        lambda c: c.send(X, 1),
    ),
    (
        "overlap",
        lambda c: halves(c, 1),
        14,
        "exchange: messages[0].out overlaps messages[1].out",
        lambda c: c.exchange([SendTo(X, 1, 5), SendTo(X, 1, 6)]),
    ),
    (
        "one of two",
        lambda c: c.exchange([SendTo(X, 0, 5), SendTo(X[::2], 0, 6)]),
        14,
        "exchange: messages[1].x is not contiguous",
        lambda c: c.exchange([RecvFrom(X.copy(), 1, 5), RecvFrom(X.copy(), 1, 6)]),
    ),
    (
        "one of no message",
        lambda c: c.exchange([SendTo(X, 0, 5), 7]),
        1,
        "exchange: messages[1] must be a collops.SendTo or a collops.RecvFrom, got int",
        lambda c: c.recv(X.copy(), 1, 5),
    ),
]


@pytest.mark.parametrize(
    ("wrong", "code", "part", "meanwhile"), [row[1:] for row in TOLD], ids=[row[0] for row in TOLD]
)
def test_the_peer_is_told(wrong: Call, code: int, part: str, meanwhile: Call) -> None:
    def work(rank: int) -> list[Any]:
        with collops.init(timeout_s=patience(20)) as comm:
            comm.barrier()
            first = (0, "")
            if rank < 2:
                first = ending(lambda: (meanwhile, wrong)[rank](comm))
            comm.barrier()
            if rank == 0:
                comm.send(X, 1, 9)
            if rank == 1:
                assert (comm.recv(np.empty(6, np.float32), 0, 9) == X).all()
            return [*first]

    told, own, third = run_ranks(work, 3)
    assert own[0] == code
    assert part in own[1]
    assert told[0] == 102
    assert "rank 1 (pid " in told[1]
    assert own[1] in told[1]
    assert third == [0, ""]


LOCAL: list[tuple[str, Call, str]] = [
    ("to itself", lambda c: c.send(X, c.rank), "send: to is this rank itself"),
    ("from itself", lambda c: c.recv(X.copy(), c.rank), "recv: from_ is this rank itself"),
    ("to nobody", lambda c: c.send(X, 2), "send: to must be in [0, 2), got 2"),
    ("from nobody", lambda c: c.recv(X.copy(), -1), "recv: from_ must be in [0, 2), got -1"),
    ("to any", lambda c: c.send(X, None), "send: to must be a whole number, got None"),
    ("tag", lambda c: c.send(X, 1 - c.rank, -1), "send: tag must be from 0 to 2147483647, got -1"),
    (
        "a tag's name",
        lambda c: c.recv(X.copy(), tag="a"),
        "recv: tag must be a whole number, got 'a'",
    ),
    (
        "no list",
        lambda c: c.exchange(SendTo(X, 0)),
        "exchange: messages must be a list, got SendTo",
    ),
    (
        "in a list",
        lambda c: c.exchange([RecvFrom(X.copy(), 2)]),
        "messages[0].from_ must be in [0, 2)",
    ),
]


@pytest.mark.parametrize(
    ("wrong", "part"), [row[1:] for row in LOCAL], ids=[row[0] for row in LOCAL]
)
def test_a_wrong_peer_or_tag_is_local(wrong: Call, part: str) -> None:
    def work(rank: int) -> tuple[int, str]:
        with collops.init(timeout_s=patience(20)) as comm:
            found = ending(lambda: wrong(comm))
            comm.barrier()
            return found

    for code, message in run_ranks(work, 2):
        assert code == 1
        assert part in message


@pytest.mark.parametrize("out", [np.empty(5, np.float32), np.empty(6, np.float64)])
def test_a_mismatch_ends_the_group_with_one_text(out: Any) -> None:
    def work(rank: int) -> tuple[int, str]:
        with collops.init(timeout_s=patience(20)) as comm:
            comm.barrier()
            if rank == 2:
                return ending(comm.barrier)
            return ending(lambda: comm.send(X, 1) if rank == 0 else comm.recv(out, 0))

    endings = run_ranks(work, 3)
    taken = f"receives {out.size} {out.dtype}: both must state the same dtype"
    for code, message in endings:
        assert code == 102
        assert "sends 6 float32, rank 1 (pid " in message
        assert taken in message
    assert endings[0] == endings[1]


def test_two_sends_first_time_out_with_advice_to_exchange() -> None:
    def work(rank: int) -> tuple[int, str]:
        with collops.init() as comm:
            comm.barrier()
            collops.init(timeout_s=0.5)
            return ending(lambda: comm.send(X, 1 - rank))

    for code, message in run_ranks(work, 2):
        assert code == 100
        assert "two ranks that both send first wait for each other, exchange does not" in message
