"""A receiver that has received everything still sends its verdicts, whatever it does next."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import collops
from collops.testing import run_ranks
from patience import patience

MESSAGES = 12  # more than there is room for verdicts that nobody has read
ELEMENTS = 5000


def send_all(comm: collops.Communicator) -> None:
    x = comm.empty((MESSAGES + 1, ELEMENTS), np.float32)
    x[:] = np.arange(x.size).reshape(x.shape)
    comm.exchange([collops.SendTo(x[i], 1, tag=i) for i in range(MESSAGES + 1)])


def receive_all(comm: collops.Communicator) -> bool:
    """The last one first: then all others are there, and are read in one go."""
    out = np.empty((MESSAGES + 1, ELEMENTS), np.float32)
    comm.recv(out[MESSAGES], 0, tag=MESSAGES)
    comm.exchange([collops.RecvFrom(out[i], 0, tag=i) for i in range(MESSAGES)])
    return bool((out.reshape(-1) == np.arange(out.size)).all())


def test_a_sender_does_not_wait_for_the_receivers_next_call(tmp_path: Path) -> None:
    sent = tmp_path / "sent"

    def work(rank: int) -> bool:
        with collops.init() as comm:
            comm.barrier()
            if rank == 0:
                send_all(comm)
                sent.touch()
                return True
            right = receive_all(comm)
            deadline = time.monotonic() + patience(30)
            while not sent.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            return right and sent.exists()

    assert run_ranks(work, 2, timeout=patience(60)) == [True, True]


def test_a_receiver_that_closes_has_sent_its_verdict(tmp_path: Path) -> None:
    def work(rank: int) -> bool:
        for i in range(20):
            comm = collops.init(comm_domain=f"round{i}")
            comm.barrier()
            if rank == 0:
                send_all(comm)
            elif not receive_all(comm):
                return False
            comm.close()
        return True

    assert run_ranks(work, 2, timeout=patience(60)) == [True, True]
