"""A call that fails leaves its inputs as they were, whatever it has left in its outputs.

After a disagreement these, too, are as they were.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from typing import Any

import numpy as np
import pytest

import collops
from collops import SendTo
from collops.testing import run_ranks
from patience import patience
from tests.unit.plain.every_call import Call, calls_of, flat

SIZE = 3
ENDS = 1  # the rank
WAYS = pytest.mark.parametrize("threads", [False, True], ids=["processes", "threads"])


def inputs_of(call: Call, rank: int) -> Any:
    """What the call reads: not what it writes too, a received tensor and, but for the root, x."""
    name, args, options = call
    if name == "broadcast" and rank != options["root"]:
        return []
    if name == "exchange":
        return [one.x for one in args[0] if isinstance(one, SendTo)]
    return [*args, *(value for key, value in options.items() if key != "out")]


def connected(number: int, rank: int) -> tuple[collops.Communicator, Call]:
    """A communicator for the calls of that number, and one of them."""
    comm = collops.init(rank, SIZE, comm_domain=f"call {number}", timeout_s=patience(20))
    return comm, calls_of(rank, SIZE)[number]


def run(comm: collops.Communicator, call: Call) -> None:
    name, args, options = call
    getattr(comm, name)(*args, **options)
    if name == "matmul":  # it waits for nobody
        comm.barrier()


def end(number: int, threads: bool) -> None:
    """Takes part, and ends: a thread after some calls, a process by SIGKILL at any moment."""
    if threads:
        comm, call = connected(number, ENDS)
        for _ in range(number % 3):
            run(comm, call)
        comm.close()
        return
    child = os.fork()
    if child == 0:
        comm, call = connected(number, ENDS)
        run(comm, call)
        delay_s = random.Random(number).random() * 0.005
        threading.Timer(delay_s, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        while True:
            run(comm, call)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def work(rank: int, threads: bool) -> list[str]:
    """The calls of every kind that have failed, and not left their inputs alone."""
    wrong = []
    for number in range(len(calls_of(rank, SIZE))):
        if rank == ENDS:
            end(number, threads)
            continue
        comm, call = connected(number, rank)
        before = flat(inputs_of(call, rank))
        with pytest.raises((collops.PeerLostError, collops.AbortedError)):
            while True:
                run(comm, call)
        if flat(inputs_of(call, rank)) != before:
            wrong.append(f"{call[0]} {number}")
        comm.close()
    return wrong


@WAYS
def test_inputs_are_as_they_were(threads: bool) -> None:
    assert run_ranks(work, SIZE, threads, threads=threads) == [[]] * SIZE


def left_by_disagreements(rank: int) -> list[str]:
    """The calls that have written to an output, or to x, although the ranks disagree."""
    dtype = np.float64 if rank == ENDS else np.float32
    x, one = np.full(2 * SIZE, rank + 1, dtype), [2] * SIZE
    calls: list[tuple[str, tuple[Any, ...], int]] = [
        ("all_gather", (x,), 2 * SIZE * SIZE),
        ("all_gatherv", (x, [2 * SIZE] * SIZE), 2 * SIZE * SIZE),
        ("reduce_scatter", (x,), 2),
        ("reduce_scatterv", (x, one), 2),
        ("all_reduce", (x,), 2 * SIZE),
        ("all_to_allv", (x, one, one), 2 * SIZE),
        ("reduce", (x,), 2 * SIZE),
        ("broadcast", (x,), 0),
    ]
    wrong = []
    for number, (name, args, size) in enumerate(calls):
        comm = collops.init(rank, SIZE, comm_domain=f"call {number}", timeout_s=patience(20))
        out = np.full(size, -7 - rank, dtype)
        options = {"out": out} if size else {}
        with pytest.raises(collops.RankMismatchError):
            getattr(comm, name)(*args, **options)
        if not (np.all(out == -7 - rank) and np.all(x == rank + 1)):
            wrong.append(name)
        comm.close()
    return wrong


@WAYS
def test_outputs_are_as_they_were_after_a_disagreement(threads: bool) -> None:
    assert run_ranks(left_by_disagreements, SIZE, threads=threads) == [[]] * SIZE
