"""One of two ranks gives the other a text that is none: bytes without an end that are no UTF-8."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import collops
from patience import patience

Comm = collops.Communicator
Pipe = tuple[int, int]
# Longer than the place of any text, so that its end is the end of that place.
MARK = "a word of this rank. " * 100
NO_TEXT = b"\xff"


def overwrite() -> int:
    """Puts bytes of no text into the place of each MARK in shared memory; how many there were."""
    found = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        words = line.split()
        if len(words) < 6 or "memfd:collops" not in words[5] or "rw" not in words[1]:
            continue
        begin, end = (int(word, 16) for word in words[0].split("-"))
        with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
            memory.seek(begin)
            content = memory.read(end - begin)
            at = content.find(MARK[:200].encode())
            while at >= 0:
                stop = content.index(b"\0", at) + 1
                memory.seek(begin + at)
                memory.write(NO_TEXT * (stop - at))
                found += 1
                at = content.find(MARK[:200].encode(), stop)
    return found


def meet(rank: int, domain: str, pipe: Pipe) -> Comm:
    """A communicator whose first call is over on rank 0 too, where rank 1 goes on."""
    comm = collops.init(comm_domain=domain, timeout_s=patience(20))
    comm.barrier()
    if rank == 0:
        os.write(pipe[1], b".")
    else:
        os.read(pipe[0], 1)
    return comm


def close(comm: Comm) -> None:
    with contextlib.suppress(LookupError), comm:
        raise LookupError(MARK)


class NoMemory:
    """A tensor that has no memory to give."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise ValueError(MARK)


def refuse_a_message(comm: Comm) -> None:
    with contextlib.suppress(ValueError):
        comm.send(NoMemory(), 0)


# What the odd rank does, and the call of the other one.
CASES: dict[str, tuple[Callable[[Comm], Any], Callable[[Comm], Any]]] = {
    "leaves": (close, lambda comm: comm.barrier()),
    "aborts": (lambda comm: comm.abort(MARK), lambda comm: comm.barrier()),
    "refuses": (
        lambda comm: comm.refuse("Barrier", ValueError(MARK)),
        lambda comm: comm.barrier(),
    ),
    "refuses a message": (refuse_a_message, lambda comm: comm.recv(np.empty(1), 1)),
}


def lie(rank: int, met: Pipe, done: Pipe) -> dict[str, tuple[int, str]]:
    """Of rank 0: code and message by case. Of rank 1: how many texts it has overwritten."""
    heard: dict[str, tuple[int, str]] = {}
    for case, (odd, call) in CASES.items():
        comm = meet(rank, case, met)
        if rank == 1:
            odd(comm)
            heard[case] = overwrite(), ""
            os.write(done[1], b".")
            continue
        os.read(done[0], 1)
        try:
            call(comm)
        except collops.Error as error:
            heard[case] = error.code, error.message
    return heard


class Unprintable(Exception):
    """An exception that has no text."""

    def __str__(self) -> str:
        raise ZeroDivisionError


# Exceptions whose text the core cannot take as it is.
ERRORS: dict[str, Exception] = {
    "a file's name that is no text": OSError("no such file: \udcff\udc80"),
    "no text at all": Unprintable(),
}


def tell(rank: int, met: Pipe) -> dict[str, tuple[int, str]]:
    """Of rank 0, what it hears of errors of rank 1: in a refusal, in `with`, of an abort."""
    heard: dict[str, tuple[int, str]] = {}
    for name, error in ERRORS.items():
        for case in ("refuses", "leaves", "aborts"):
            comm = meet(rank, f"{case}, {name}", met)
            if rank == 0:
                try:
                    comm.barrier()
                except collops.Error as caught:
                    heard[f"{case}, {name}"] = caught.code, caught.message
            elif case == "refuses":
                comm.refuse("Barrier", error)
            elif case == "aborts":
                comm.abort(error.args[0] if error.args else "")
            else:
                with contextlib.suppress(type(error)), comm:
                    raise error
    return heard
