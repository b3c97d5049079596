"""Calls in which one rank, each in turn, disagrees with the others in one field.

COLLOPS_ALL_FAULTS=1: each rank in each case; otherwise one rank per case, another one in the next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import collops
from tests.messages import disagreements, linear_disagreements
from tests.messages.witness import Witness

Comm = collops.Communicator
Call = Callable[[Witness, Comm], Any]
# A rank's moments of arrival and of its error, the error's code and text.
Heard = tuple[float, float, int, str]


def in_turn(*calls: Call) -> Call:
    """Some calls, one after the other."""

    def call(w: Witness, comm: Comm) -> None:
        for one in calls:
            one(w, comm)

    return call


SUM = disagreements.even("all_reduce")
GATHER = disagreements.gather()
# What the odd rank does in the place of its second call.
FEWER: dict[str, Call] = {
    "one call fewer, then another": disagreements.even("all_reduce", dtype="i4"),
    "one call fewer, then close": lambda w, comm: comm.close(),
}


def cases(ranks: int) -> dict[str, tuple[Call, Call]]:
    """The call of the odd rank, and the call of the others."""
    return {
        **disagreements.CASES,
        # Blocks that fit for any number of ranks up to 3.
        "displs[i] of AllGatherV": (
            disagreements.atb_gather([1, 1, 1], [0, 2, 4]),
            disagreements.atb_gather([1, 1, 1], [0, 1, 4]),
        ),
        "order of calls": (in_turn(GATHER, SUM), in_turn(SUM, GATHER)),
        **{
            f"LinearParallel: {name}": both
            for name, both in linear_disagreements.cases(ranks).items()
        },
    }


def odd_ranks(number: int, size: int) -> list[int]:
    """Which ranks are odd, one after the other, in the case of that number."""
    return list(range(size)) if os.environ.get("COLLOPS_ALL_FAULTS") else [number % size]


def witness(rank: int, size: int) -> Witness:
    """One that makes calls and notes nothing."""
    return Witness(rank, size, [], 0.0, Path(os.devnull))


def hear(rank: int, size: int, domain: str, call: Call) -> Heard:
    """Makes a call that must fail."""
    w = witness(rank, size)
    comm = w.join(domain)
    begin = time.monotonic()
    try:
        call(w, comm)
    except collops.Error as error:
        return begin, time.monotonic(), error.code, error.message
    return begin, time.monotonic(), 0, ""


def disagree(rank: int, size: int) -> dict[str, Heard]:
    """What this rank hears in each case, with each rank in turn as the odd one."""
    heard = {}
    for number, (name, (odd_call, call)) in enumerate(cases(size).items()):
        for odd in odd_ranks(number, size):
            domain = f"{name}, rank {odd}"
            heard[domain] = hear(rank, size, domain, odd_call if rank == odd else call)
    return heard


def make_one_call_fewer(rank: int, size: int) -> dict[str, Heard]:
    """As disagree(), where the odd rank leaves out a call of the others."""
    heard = {}
    for name, instead in FEWER.items():
        for odd in range(size):
            domain = f"{name}, rank {odd}"
            call = in_turn(SUM, instead) if rank == odd else in_turn(SUM, GATHER)
            heard[domain] = hear(rank, size, domain, call)
    return heard


def end_without_a_call(rank: int, size: int, odd: int) -> Heard:
    """The odd rank ends its program after one call."""
    w = witness(rank, size)
    comm = w.join("ends")
    SUM(w, comm)
    begin = time.monotonic()
    if rank == odd:
        return begin, begin, 0, ""
    try:
        np.sum(comm.all_gatherv(np.ones(3)))
    except collops.Error as error:
        return begin, time.monotonic(), error.code, error.message
    return begin, time.monotonic(), 0, ""
