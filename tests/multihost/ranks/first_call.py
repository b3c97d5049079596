"""One rank whose communicators meet in their first call, whichever that is, without init()."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

import collops

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def gather(domain: str, x: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """All ranks' numbers, by an operation of its own."""
    param = collops.AllGatherParam(rank=RANK, rank_size=SIZE, backend="ucx", comm_domain=domain)
    own = np.full((1, 2), RANK, np.float32) if x is None else x
    [out] = collops.Operation(param).forward([own])
    return np.asarray(out)


def check_gather(domain: str) -> None:
    wanted = np.repeat(np.arange(SIZE, dtype=np.float32), 2).reshape(SIZE, 1, 2)
    assert np.array_equal(gather(domain), wanted)


def check_messages_first() -> None:
    """Two ranks begin with a message, the others with a gather."""
    fields = {"rank": RANK, "rank_size": SIZE, "backend": "ucx", "comm_domain": "messages"}
    x = np.arange(70_000, dtype=np.float32)
    if RANK == 0:
        collops.Operation(collops.SendParam(dest_rank=SIZE - 1, **fields)).forward([x])
    elif RANK == SIZE - 1:
        received = collops.Operation(collops.RecvParam(src_rank=0, **fields)).forward([x * 0])
        assert np.array_equal(received[0], x)
    check_gather("messages")


def check_refusal_first() -> None:
    """One rank refuses the first call of all."""
    try:
        gather("refusal", np.zeros((1, 4), np.float32)[:, ::2] if RANK == 1 else None)
    except collops.Error as error:
        assert "contiguous" in error.message, error
        assert RANK == 1 or error.name == "ERROR_RANK_MISMATCH", error
    check_gather("refusal")


def check_time_out() -> None:
    """Two ranks that both send first wait for each other, until the time-out says so."""
    comm = collops.init(backend="ucx", comm_domain="late", timeout_s=1.5)
    if RANK not in (0, SIZE - 1):
        return
    try:
        comm.send(np.ones(5), SIZE - 1 - RANK, tag=4)
    except collops.Error as error:
        # The first of the two ends the communicator of both.
        assert error.name == "ERROR_TIMEOUT", error
        assert "send of 5 float64 to rank " in error.message, error
        assert "two ranks that both send first" in error.message, error
    else:
        raise AssertionError("no error")


if __name__ == "__main__":
    check_gather("gather")
    check_messages_first()
    check_refusal_first()
    check_time_out()
    print("first call", flush=True)
