"""Scenes in which a communicator is closed, aborted, interrupted, inherited, or used twice."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable

import numpy as np

import collops
from tests.messages import disagreements as calls
from tests.messages.linear_disagreements import Call
from tests.messages.losses import LARGE, in_window
from tests.messages.scene import Scene
from tests.messages.witness import Witness

Comm = collops.Communicator


def every_call(w: Witness, comm: Comm, when: str) -> None:
    """The expected messages of each kind of call."""
    table: dict[str, Callable[[], object]] = {
        "barrier": comm.barrier,
        "all_gatherv": lambda: comm.all_gatherv(np.ones(2), [2] * w.size),
        "all_gatherv without sizes": lambda: comm.all_gatherv(np.ones(2)),
        "reduce_scatterv": lambda: comm.reduce_scatterv(np.ones(4)),
        "all_reduce": lambda: comm.all_reduce(np.ones(4)),
        "broadcast": lambda: comm.broadcast(np.ones(4)),
        "split": lambda: comm.split(0),
        "empty": lambda: comm.empty(3, np.int8),
        "matmul_all_reduce": lambda: comm.matmul_all_reduce(np.ones((2, 2)), np.ones((2, 2))),
        "refusal": lambda: comm.all_gatherv(None),
        "AllGatherV by its handle": lambda: calls.atb_gather(calls.COUNTS, calls.DISPLS)(w, comm),
        "LinearParallel by its handle": lambda: Call()(w, comm),
    }
    for name, call in table.items():
        w.hears(f"{when}: {name}", call)


def close(w: Witness) -> None:
    """Each rank closes its own; then calls."""
    comm = w.join("closed")
    op = gather_operation(w)
    comm.close()
    every_call(w, comm, "closed")
    w.hears("closed: AllGatherV of before", lambda: gather(w, op))
    comm = w.join("in with")
    w.hears("left with an error", lambda: leave_with(comm))
    w.hears("left with an error: barrier", comm.barrier)


def leave_with(comm: Comm) -> None:
    try:
        with comm:
            raise LookupError("no such token")
    except LookupError:
        return


def gather_operation(w: Witness, domain: str = "closed") -> collops.Operation:
    """AllGatherV of one element of every rank."""
    param = collops.AllGatherVParam(
        rank=w.rank, rank_size=w.size, backend="shm", comm_domain=domain
    )
    return collops.Operation(param)


def gather(w: Witness, op: collops.Operation) -> object:
    ones = np.ones(w.size, np.int64)
    return op.forward([ones[:1], ones[:1], ones, np.arange(w.size), np.empty(w.size, np.float16)])


def abort(w: Witness) -> None:
    """The last rank aborts while the others wait, and one more time before they come."""
    for case, reason in {"abort": "", "abort with a reason": "enough"}.items():
        comm = w.join(case)
        if w.last:
            for _ in range(w.size - 1):
                w.gates[0].wait()
            comm.abort(reason)
        else:
            waits = w.once_asleep(w.gates[0].open)
            w.hears(case, comm.barrier)
            waits.join()
    for case, rows in {"of few": 2, "of many": LARGE}.items():
        comm = w.join(f"aborted before {case}")
        if w.last:
            for _ in range(w.size - 1):
                w.gates[2].wait()  # nobody is in join() any more
            comm.abort()
            w.gates[1].open(w.size - 1)
        else:
            w.gates[2].open()
            w.gates[1].wait()
        x, sizes = np.ones(rows), [rows] * w.size
        call = functools.partial(comm.all_gatherv, x, sizes)
        w.hears(f"aborted before all_gatherv {case}", call)
        w.hears(f"aborted before all_gatherv {case}, then barrier", comm.barrier)


def abort_from_a_thread(w: Witness) -> None:
    """A thread of rank 0 aborts the call that its main thread waits in."""
    comm = w.join("thread")
    if w.rank == 0:
        aborts = w.once_asleep(lambda: comm.abort("from a thread"))
        w.hears("all_gatherv", lambda: comm.all_gatherv(np.ones(2)))
        aborts.join()
        w.gates[0].open(w.size - 1)
    else:
        w.gates[0].wait()
        w.hears("all_gatherv", lambda: comm.all_gatherv(np.ones(2)))


def interrupt(w: Witness) -> None:
    """Ctrl-C ends rank 0's wait; the others come later."""
    table: dict[str, Callable[[Comm], object]] = {
        "barrier": lambda comm: comm.barrier(),
        "all_gatherv of many": lambda comm: comm.all_gatherv(np.ones(LARGE), [LARGE] * w.size),
        "all_gatherv of a window": lambda comm: comm.all_gatherv(
            in_window(w, comm), [LARGE] * w.size
        ),
        "LinearParallel": lambda comm: Call()(w, comm),
        "split": lambda comm: comm.split(0),
    }
    for case, call in table.items():
        comm = w.join(case)
        if w.rank == 0:
            interrupts = w.once_asleep(lambda: os.kill(os.getpid(), signal.SIGINT))
            w.hears(case, lambda c=comm, call=call: call(c))
            interrupts.join()
            w.gates[0].open(w.size - 1)
        else:
            w.gates[0].wait()
            w.hears(case, lambda c=comm, call=call: call(c))
        w.hears(f"{case}, then barrier", comm.barrier)


def fork(w: Witness) -> None:
    """A child of fork() calls, and has no part in the group; its parent goes on."""
    comm, op = w.join("parent"), gather_operation(w, "parent")
    child = os.fork()
    if child == 0:
        try:
            every_call(w, comm, "in a child")
            w.hears("in a child: AllGatherV of before", lambda: gather(w, op))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    w.hears("in the parent: barrier", comm.barrier)


def intrude(w: Witness) -> None:
    """A second thread of rank 0 calls while the first one waits."""
    comm, op = w.join("two"), gather_operation(w, "two")
    gather(w, op)

    def second() -> None:
        w.hears("second thread: barrier", comm.barrier)
        w.hears("second thread: all_gatherv", lambda: comm.all_gatherv(np.ones(2)))
        w.hears("second thread: reduce_scatterv", lambda: comm.reduce_scatterv(np.ones(2)))
        w.hears("second thread: split", lambda: comm.split(0))
        w.hears("second thread: refusal", lambda: comm.all_gatherv(None))
        w.hears("second thread: the operation", lambda: gather(w, op))
        w.gates[0].open(w.size - 1)

    if w.rank == 0:
        thread = w.once_asleep(second)
        w.hears("first thread: AllGatherV", lambda: gather(w, op))
        thread.join()
    else:
        w.gates[0].wait()
        w.hears("AllGatherV", lambda: gather(w, op))


PLAYS = {
    "closed": close,
    "aborted": abort,
    "aborted by a thread": abort_from_a_thread,
    "interrupted": interrupt,
    "inherited by fork": fork,
    "used by two threads": intrude,
}
SCENES = [
    Scene(f"3 ranks, {name}", 3, play, {"COLLOPS_FUSED": "1"}) for name, play in PLAYS.items()
]
