"""Scenes in which ranks do not find together: one is missing, claimed twice, of another size."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

import collops
from tests.messages.scene import Scene
from tests.messages.witness import LATE_S, PATIENCE_S, Witness

# Of a rank that must have had time for a few messages.
HEARD_S = 1.0


def operation(rank: int, size: int, timeout_s: float, domain: str) -> collops.Operation:
    """AllGatherV, whose creation begins first contact and whose first call completes it."""
    os.environ["COLLOPS_TIMEOUT_S"] = f"{timeout_s}"
    param = collops.AllGatherVParam(rank=rank, rank_size=size, backend="shm", comm_domain=domain)
    return collops.Operation(param)


def gather(op: collops.Operation, size: int) -> object:
    ones = np.ones(size, np.int64)
    return op.forward([ones[:1], ones[:1], ones, np.arange(size), np.empty(size, np.float16)])


def miss(missing: int, impatient: int) -> Callable[[Witness], None]:
    """One rank does not come; the patience of one that does ends when the others wait."""

    def play(w: Witness) -> None:
        if w.rank == missing:
            return
        others = [r for r in range(w.size) if r not in (missing, impatient)]
        if w.rank != impatient:
            if impatient == 0:
                w.gates[1].wait()  # it listens
            op = operation(w.rank, w.size, PATIENCE_S, "missing")
            waits = w.once_asleep(w.gates[0].open)
            w.hears("AllGatherV", lambda: gather(op, w.size))
            return waits.join()
        late_s = LATE_S if w.rank == 0 else HEARD_S
        op = operation(w.rank, w.size, late_s, "missing")
        w.gates[1].open(len(others) + 1)
        for _ in others:
            w.gates[0].wait()
        w.hears("AllGatherV", lambda: gather(op, w.size))
        w.hears("AllGatherV, then again", lambda: gather(op, w.size))

    return play


def miss_rank_0(w: Witness) -> None:
    """Rank 0 does not come; each of the others gets its own error."""
    if w.rank > 0:
        w.hears("init", lambda: collops.init(timeout_s=LATE_S, comm_domain="missing"))


def make_no_call(w: Witness) -> None:
    """Rank 0 has been created, which listens, and makes no call; the others' patience ends."""
    if w.rank == 0:
        op = operation(0, w.size, PATIENCE_S, "silent")
        w.gates[0].open(w.size - 1)
        for _ in range(w.size - 1):
            w.gates[1].wait()
        del op
        return
    w.gates[0].wait()
    op = operation(w.rank, w.size, LATE_S, "silent")
    w.hears("AllGatherV", lambda: gather(op, w.size))
    w.gates[1].open()


def claim(claims: list[tuple[int, int]]) -> Callable[[Witness], None]:
    """Each process says which rank of how many it is; those beyond the list stay away.

    They begin together: who comes when the others have refused each other and left waits alone.
    """

    def play(w: Witness) -> None:
        if w.rank >= len(claims):
            return
        rank, size = claims[w.rank]
        w.gates[w.rank].open(len(claims))
        for gate in w.gates[: len(claims)]:
            gate.wait()
        w.hears("init", lambda: collops.init(rank, size, timeout_s=PATIENCE_S, comm_domain="claim"))

    return play


def leave_in_a_call(leaver: int) -> Callable[[Witness], None]:
    """Of 3 ranks one closes while it and another wait for the last, which does not come."""

    def play(w: Witness) -> None:
        if w.last:
            return
        op = operation(w.rank, w.size, PATIENCE_S, "leaving")
        close_all = collops.core.core().close_all

        def wait_and_close() -> None:
            if w.rank == leaver:
                w.gates[0].wait()
                close_all("LookupError: no such token")
            else:
                w.gates[0].open()

        waits = w.once_asleep(wait_and_close)
        w.hears("AllGatherV", lambda: gather(op, w.size))
        waits.join()

    return play


def end_rank_0(w: Witness) -> None:
    """Rank 0 listens, and ends when the others wait."""
    if w.rank == 0:
        op = operation(0, w.size, PATIENCE_S, "leaving")
        w.gates[0].open(w.size - 1)
        for _ in range(w.size - 1):
            w.gates[1].wait()
        del op
        os._exit(0)
    w.gates[0].wait()
    op = operation(w.rank, w.size, PATIENCE_S, "leaving")
    waits = w.once_asleep(w.gates[1].open)
    w.hears("AllGatherV", lambda: gather(op, w.size))
    waits.join()


def end_rank_1(w: Witness) -> None:
    """Rank 1 has said hello, and ends when rank 0 waits for rank 2, which does not come."""
    if w.rank == 0:
        op = operation(0, w.size, PATIENCE_S, "leaving")
        w.gates[0].open()
        w.gates[1].wait()
        waits = w.once_asleep(w.gates[2].open)
        w.hears("AllGatherV", lambda: gather(op, w.size))
        waits.join()
    elif w.rank == 1:
        w.gates[0].wait()
        op = operation(1, w.size, PATIENCE_S, "leaving")
        w.gates[1].open()
        w.gates[2].wait()
        del op
        os._exit(0)


def change_the_size(w: Witness) -> None:
    """The messages to a process that contradicts a domain it has."""
    comm = w.join("live")
    for name, size, rank in [("rankSize", w.size + 1, w.rank), ("rank", w.size, 1 - w.rank)]:
        if w.rank < 2:
            w.hears(
                f"another {name}", lambda r=rank, n=size: collops.init(r, n, comm_domain="live")
            )
    w.hears("then barrier", comm.barrier)


SCENES = [
    Scene("3 ranks, rank 0 is missing at first contact", 3, miss_rank_0),
    *(
        Scene(
            f"3 ranks, rank {missing} is missing at first contact, rank {impatient} gives up",
            3,
            miss(missing, impatient),
        )
        for missing, impatient in [(1, 0), (1, 2), (2, 0), (2, 1)]
    ),
    Scene("3 ranks, rank 0 makes no call", 3, make_no_call),
    Scene("3 ranks, rank 0 is claimed twice", 3, claim([(0, 3), (0, 3), (1, 3)]), racing=True),
    Scene("3 ranks, rank 1 is claimed twice", 3, claim([(0, 3), (1, 3), (1, 3)]), racing=True),
    Scene("3 ranks, another rankSize", 4, claim([(0, 3), (1, 4), (2, 3)]), racing=True),
    Scene("3 ranks, another rankSize of rank 0", 4, claim([(0, 4), (1, 3), (2, 3)]), racing=True),
    Scene("2 ranks, more than were started", 2, claim([(0, 3), (1, 3)])),
    *(
        Scene(f"3 ranks, rank {leaver} closes during first contact", 3, leave_in_a_call(leaver))
        for leaver in (0, 1)
    ),
    Scene("3 ranks, rank 0 ends during first contact", 3, end_rank_0, dying=True),
    Scene("3 ranks, rank 1 ends during first contact", 3, end_rank_1, dying=True),
    Scene("3 ranks, a live domain is contradicted", 3, change_the_size),
]
