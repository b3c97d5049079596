"""Scenes in which the rank of the highest number is killed, leaves, or does not come to a call."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import collops
from tests.messages import disagreements as calls
from tests.messages.linear_disagreements import FUSED, SUM, Call
from tests.messages.scene import Scene
from tests.messages.witness import LATE_S, PATIENCE_S, Witness

Comm = collops.Communicator
Calls = dict[str, Callable[[Witness, Comm], Any]]
LARGE = 100_000


def in_window(w: Witness, comm: Comm, elements: int = LARGE) -> Any:
    """Numbers in memory that peers read in place."""
    x = comm.empty(elements, np.float32)
    x[...] = w.rank
    return x


CALLS: Calls = {
    "barrier": calls.barrier,
    "split": calls.split,
    "all_gatherv of few": lambda w, comm: comm.all_gatherv(np.ones(2), [2] * w.size),
    "all_gatherv of many": lambda w, comm: comm.all_gatherv(np.ones(LARGE), [LARGE] * w.size),
    "all_gatherv of a window": lambda w, comm: comm.all_gatherv(
        in_window(w, comm), [LARGE] * w.size
    ),
    "all_gatherv without sizes": lambda w, comm: comm.all_gatherv(np.ones(2)),
    "AllGatherV": calls.atb_gather(calls.COUNTS, calls.DISPLS),
    "reduce_scatterv of few": lambda w, comm: comm.reduce_scatterv(np.ones(6)),
    "reduce_scatterv of many": lambda w, comm: comm.reduce_scatterv(np.ones(LARGE)),
    "reduce_scatterv of a window": lambda w, comm: comm.reduce_scatterv(in_window(w, comm)),
    "all_gather": calls.even("all_gather"),
    "reduce_scatter": calls.even("reduce_scatter"),
    "all_reduce": calls.even("all_reduce"),
    "broadcast": calls.even("broadcast"),
}
WAITING = (
    "barrier",
    "split",
    "all_gatherv of few",
    "all_gatherv of many",
    "all_gatherv of a window",
    "all_gatherv without sizes",
    "reduce_scatterv of a window",
    "all_reduce",
)
LATE_CALLS: Calls = {name: CALLS[name] for name in WAITING}
LINEAR_CALLS: Calls = {
    "LinearParallel": Call(),
    "LinearParallel of a window": lambda w, comm: comm.all_gather_matmul(
        x := in_window(w, comm).reshape(-1, 4), np.ones((4, 4), np.float32), [len(x)] * w.size
    ),
    "LinearParallel of type 0": Call(fields={"type": SUM}),
    "matmul_reduce_scatter": lambda w, comm: comm.matmul_reduce_scatter(
        np.ones((6, 4), np.float32), np.ones((4, 5), np.float32)
    ),
}


def lose(table: Calls, leave: Callable[[Witness, list[Comm]], None]) -> Callable[[Witness], None]:
    """The last rank ends while the others wait in their first call; they then make the others."""

    def play(w: Witness) -> None:
        comms = [w.join(name) for name in table]
        if w.last:
            for _ in range(w.size - 1):
                w.gates[0].wait()
            return leave(w, comms)
        told = w.once_asleep(w.gates[0].open)
        for comm, (name, call) in zip(comms, table.items(), strict=True):
            w.hears(name, lambda c=comm, call=call: call(w, c))
        w.hears("then barrier", comms[0].barrier)
        told.join()

    return play


def be_killed(w: Witness, comms: list[Comm]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def close(w: Witness, comms: list[Comm]) -> None:
    for comm in comms:
        comm.close()


def leave_with_an_error(w: Witness, comms: list[Comm]) -> None:
    raise LookupError("no such token")


def end(w: Witness, comms: list[Comm]) -> None:
    """Returns, so that the process ends as usual."""


def stay_away(table: Calls) -> Callable[[Witness], None]:
    """The last rank does not come; rank 0's patience ends when the others wait."""

    def play(w: Witness) -> None:
        comms = [w.join(name, LATE_S if w.rank == 0 else PATIENCE_S) for name in table]
        for comm, (name, call) in zip(comms, table.items(), strict=True):
            if w.last:
                w.gates[1].wait()  # the others have heard it
            elif w.rank > 0:
                waits = w.once_asleep(w.gates[0].open)
                w.hears(name, lambda c=comm, call=call: call(w, c))
                waits.join()
            else:
                for _ in range(w.size - 2):
                    w.gates[0].wait()
                w.hears(name, lambda c=comm, call=call: call(w, c))
                w.gates[1].open()
        if w.last:
            w.hears("the rank that comes after the time-out", comms[0].barrier)
        w.hears("then barrier", comms[0].barrier)

    return play


def be_in_another_call(w: Witness) -> None:
    """The last rank waits in a call of another domain, until rank 0's patience has ended."""
    comm, other = w.join("this", LATE_S if w.rank == 0 else PATIENCE_S), w.join("another")
    if w.rank == 0:
        for _ in range(w.size - 1):
            w.gates[0].wait()
        w.hears("barrier", comm.barrier)
        return other.barrier()
    waits = w.once_asleep(w.gates[0].open)
    if not w.last:
        w.hears("barrier", comm.barrier)
    other.barrier()
    waits.join()


def be_stopped(w: Witness) -> None:
    """The last rank is stopped before it comes; rank 0 lets it go on at the end."""
    comm = w.join("stopped", LATE_S if w.rank == 0 else PATIENCE_S)
    pid = int(comm.all_gatherv(np.array([os.getpid()]))[-1])
    if w.last:
        os.kill(pid, signal.SIGSTOP)
    elif w.rank > 0:
        waits = w.once_asleep(w.gates[0].open)
        w.hears("barrier", comm.barrier)
        waits.join()
    else:
        while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "T":
            os.sched_yield()
        for _ in range(w.size - 2):
            w.gates[0].wait()
        w.hears("barrier", comm.barrier)
        os.kill(pid, signal.SIGCONT)


def not_finish(w: Witness) -> None:
    """Rank 1 begins a call, and what it has begun with waits in a signal handler; 2 ranks."""
    comm = w.join("begun", LATE_S if w.rank == 0 else PATIENCE_S)
    x = in_window(w, comm)

    def linger(number: int, frame: Any) -> None:
        w.gates[0].open()
        w.gates[1].wait()

    def call() -> Any:
        return comm.all_gatherv(x, [LARGE] * w.size)

    if w.last:
        signal.signal(signal.SIGUSR1, linger)
        interrupts = w.once_asleep(lambda: os.kill(os.getpid(), signal.SIGUSR1))
        w.hears("all_gatherv of a window", call)
        interrupts.join()
    else:
        w.gates[0].wait()
        w.hears("all_gatherv of a window", call)
        w.gates[1].open()


ENDINGS: dict[str, tuple[Callable[[Witness, list[Comm]], None], bool]] = {
    "is killed": (be_killed, True),
    "closes": (close, False),
    "leaves with an error": (leave_with_an_error, True),
    "ends": (end, False),
}
ENGINES = {f", {engine}": {"COLLOPS_FUSED": fused} for engine, fused in FUSED.items()}

SCENES = [
    *(
        Scene(
            f"{ranks} ranks, one {ending}{engine}", ranks, lose(table, leave), env, dying, ranks > 2
        )
        # Two ranks have ways of their own in small calls; what is said of a loss is the same.
        for ranks in (2, 3)
        for ending, (leave, dying) in ENDINGS.items()
        for engine, table, env in [
            ("", CALLS, {}),
            *((engine, LINEAR_CALLS, env) for engine, env in ENGINES.items()),
        ]
        if (not engine and ranks > 2) or (ending == "is killed" and (ranks > 2 or not engine))
    ),
    *(
        Scene(f"3 ranks, one does not come{engine}", 3, stay_away(table), env)
        for engine, table, env in [
            ("", LATE_CALLS, {}),
            (", fused", LINEAR_CALLS, ENGINES[", fused"]),
        ]
    ),
    *(
        Scene(f"3 ranks, one {what}", 3, play)
        for what, play in [("is in another call", be_in_another_call), ("is stopped", be_stopped)]
    ),
    Scene("2 ranks, one does not finish", 2, not_finish),
]
