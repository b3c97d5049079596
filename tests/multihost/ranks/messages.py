"""One rank that sends and receives messages of every kind, and checks what it got."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

import collops
from collops import Communicator, RecvFrom, SendTo

# Of one byte, in the envelope and just not, of one chunk, of several, and uneven.
SIZES = (0, 1, 8192, 8193, 262_144, 262_145, 3_000_001)


def data(source: int, to: int, number: int, size: int) -> NDArray[np.uint8]:
    """Bytes that differ per sender, receiver, message and position."""
    seed = source * 8191 + to * 131 + number * 7 + 1
    return (np.arange(size, dtype=np.uint32) * 2654435761 + seed * 40503 >> 11).astype(np.uint8)


def check_sizes(comm: Communicator) -> None:
    """Every pair, both ways, and this rank itself, with all sizes at once."""
    sent = [
        SendTo(data(comm.rank, to, i, size), to, tag=i)
        for to in range(comm.size)
        for i, size in enumerate(SIZES)
    ]
    # Received in another order than sent, per tag.
    received = [
        RecvFrom(np.full(size, 0xA5, np.uint8), source, tag=i)
        for source in range(comm.size)
        for i, size in reversed(list(enumerate(SIZES)))
    ]
    comm.exchange([*received, *sent])
    for message in received:
        assert message.from_ is not None
        wanted = data(message.from_, comm.rank, message.tag, SIZES[message.tag])
        assert np.array_equal(message.out, wanted), (message.from_, message.tag)
        assert message.source == message.from_


def check_order(comm: Communicator) -> None:
    """Messages of one tag come in order; many are under way at once."""
    count, peer = 100, (comm.rank + 1) % comm.size
    before = (comm.rank - 1) % comm.size
    started = [comm.start("send", data(comm.rank, peer, i, 500), peer) for i in range(count)]
    for i in range(count):
        got = comm.recv(np.empty(500, np.uint8), before)
        assert np.array_equal(got, data(before, comm.rank, i, 500)), i
    for handle in started:
        handle.wait()


def check_any(comm: Communicator) -> None:
    """From any source: rank 0 hears of everyone, near and far, after a while of silence."""
    if comm.rank != 0:
        time.sleep(0.05 * comm.rank)  # the receiver sleeps by then
        comm.send(np.full(20_000, comm.rank, np.int32), 0, tag=3)
        return
    found = set()
    for _ in range(comm.size - 1):
        out, source = comm.recv(np.empty(20_000, np.int32), tag=3, return_source=True)
        assert (out == source).all()
        found.add(source)
    assert found == set(range(1, comm.size))


def check_pairs_are_independent(comm: Communicator) -> None:
    """A message that its receiver takes late holds up no other pair, and no group call."""
    last = comm.size - 1
    slow = None
    if comm.rank == 0:
        slow = comm.start("send", data(0, last, 1, 2_000_000), last, tag=9)
    for _ in range(3):
        following, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        out = np.empty(70_000, np.uint8)
        comm.exchange(
            [
                SendTo(data(comm.rank, following, 2, 70_000), following),
                RecvFrom(out, before),
            ]
        )
        assert np.array_equal(out, data(before, comm.rank, 2, 70_000))
        total = comm.all_reduce(np.full(300_000, comm.rank, np.int32))
        assert (total == sum(range(comm.size))).all()
    if comm.rank == last:
        got = comm.recv(np.empty(2_000_000, np.uint8), 0, tag=9)
        assert np.array_equal(got, data(0, last, 1, 2_000_000))
    if slow is not None:
        slow.wait()


def check_refusal(comm: Communicator) -> None:
    """A message that one side refuses is an error of both, and the next one is good."""
    last = comm.size - 1
    if comm.rank == 0:
        try:
            comm.send(np.ones((4, 4))[:, 1], last)
        except collops.Error as error:
            assert "contiguous" in error.message, error
        comm.send(np.ones(3), last)
    elif comm.rank == last:
        try:
            comm.recv(np.empty(4), 0)
        except collops.Error as error:
            assert error.name == "ERROR_RANK_MISMATCH", error
            assert "rank 0" in error.message and "refused message" in error.message, error
            assert "contiguous" in error.message, error
        else:
            raise AssertionError("no error")
        assert (comm.recv(np.empty(3), 0) == 1).all()


def check_window(comm: Communicator) -> None:
    """Memory of comm.empty() is a tensor like others."""
    x = comm.empty(50_000, np.float32)
    x[:] = comm.rank
    following, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    out = comm.empty(50_000, np.float32)
    comm.exchange([SendTo(x, following), RecvFrom(out, before)])
    assert (out == before).all()
    assert (comm.all_reduce(x) == sum(range(comm.size))).all()


def check_mismatch(comm: Communicator) -> None:
    """Different lengths end the communicator, with one text on both sides."""
    last = comm.size - 1
    if comm.rank not in (0, last):
        return
    try:
        if comm.rank == 0:
            comm.send(np.ones(5), last, tag=2)
        else:
            comm.recv(np.ones(6), 0, tag=2)
    except collops.Error as error:
        assert error.name == "ERROR_RANK_MISMATCH", error
        assert "sends 5 float64" in error.message, error
        assert "receives 6 float64" in error.message, error
    else:
        raise AssertionError("no error")


def main() -> None:
    # The first call is a message, which comes after first contact.
    comm = collops.init(backend="ucx")
    for _ in range(2):
        check_sizes(comm)
    check_order(comm)
    check_any(comm)
    check_pairs_are_independent(comm)
    check_refusal(comm)
    check_window(comm)
    part = comm.split(0, -comm.rank)
    check_sizes(part)
    part.close()
    comm.barrier()
    check_mismatch(comm)
    print("messages", flush=True)


if __name__ == "__main__":
    main()
