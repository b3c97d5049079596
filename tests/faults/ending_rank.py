"""One rank of a group of which one ends its program while something is under way.

``ending_rank.py RANK RANKS ENDS PHASE ENDING``: rank ENDS ends once it gets a line. Each rank says
when it is there, then when it ended or heard of it, and what it heard.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import numpy as np

import collops

Comm = collops.Communicator
Calls = Callable[[], object]
LONG = 2_000_000
NO_MESSAGE = 9  # a tag


class Rank:
    """One rank; each of its phases prepares, and returns the call that the others make."""

    def __init__(self, rank: int, ranks: int, ends: int) -> None:
        self.rank, self.ranks, self.ends = rank, ranks, ends

    def first_contact(self) -> Calls:
        """An operation begins first contact, and does not wait."""
        param = collops.AllGatherVParam(rank=self.rank, rank_size=self.ranks, backend="shm")
        op = collops.Operation(param)
        one = np.ones(self.ranks, np.int64)
        ins = [one[:1], one[:1], one, np.arange(self.ranks), np.empty(self.ranks, np.float16)]
        return lambda: op.forward(ins)

    def first_contact_in_a_thread(self) -> Calls:
        """The program does not wait for its daemon threads."""
        if self.rank == self.ends:
            threading.excepthook = lambda _: None
            threading.Thread(target=self._init, daemon=True).start()
            time.sleep(0.2)
        return self._init

    def started_messages(self) -> Calls:
        """Short and long ones, in both directions; nobody takes them."""
        comm = self._init()
        if self.rank == self.ends:
            for tag, elements in enumerate((2, LONG)):
                comm.start("send", np.ones(elements), 1 - self.rank, tag=tag)
                comm.start("recv", np.empty(elements), 1 - self.rank, tag=tag)
        return lambda: comm.recv(np.empty(3), self.ends, tag=NO_MESSAGE)

    def a_started_call(self) -> Calls:
        """A group call in the queue."""
        comm = self._init()
        if self.rank == self.ends:
            comm.start("all_gatherv", np.ones(LONG), [LONG] * self.ranks)
        return lambda: comm.recv(np.empty(3), self.ends, tag=NO_MESSAGE)

    def _init(self) -> Comm:
        return collops.init(self.rank, self.ranks)


PHASES: dict[str, Callable[[Rank], Calls]] = {
    "first contact": Rank.first_contact,
    "first contact in a thread": Rank.first_contact_in_a_thread,
    "started messages": Rank.started_messages,
    "a started call": Rank.a_started_call,
}


def fail() -> None:
    raise ValueError("the last words")


ENDINGS: dict[str, Callable[[], object]] = {
    "sys.exit": lambda: sys.exit(0),
    "the end": lambda: None,
    "an exception": fail,
}


def main(rank: int, ranks: int, ends: int, phase: str, ending: str) -> None:
    """Plays one rank."""
    call = PHASES[phase](Rank(rank, ranks, ends))
    print("there", flush=True)
    if rank == ends:
        sys.stdin.readline()
        print(time.monotonic(), flush=True)
        ENDINGS[ending]()
        return
    try:
        call()
    except collops.Error as error:
        print(time.monotonic(), error.code, error.message, flush=True)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:4]), *sys.argv[4:6])
