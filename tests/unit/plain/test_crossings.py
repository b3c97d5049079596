"""A call of the plain level like an earlier one crosses into the core once, through two frames."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import collops
from collops.testing import run_ranks
from tests.unit.plain.every_call import calls_of

X = np.zeros((4, 2), np.float32)
Paths = tuple[str, tuple[list[str], list[str]], tuple[list[str], list[str]]]


def path_of(call: Callable[[], Any]) -> tuple[list[str], list[str]]:
    """The Python frames of `call`, and the functions of the extension module that it calls."""
    frames: list[str] = []
    crossings: list[str] = []

    def note(frame: Any, event: str, function: Any) -> None:
        if event == "call":
            frames.append(frame.f_code.co_name)
        elif event == "c_call" and function.__module__ == "collops._core":
            crossings.append(function.__name__)

    gc.disable()  # whose callbacks, of whoever has some, are frames too
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return frames[1:], crossings  # without the frame of `call` itself


def paths(rank: int) -> list[Paths]:
    """Of each method: the paths of a second call of it, and of a second one that is started."""
    found = []
    with collops.init() as comm:
        for method, args, words in calls_of(rank, 2):
            if method in ("exchange", "moe_dispatch"):  # which take or make objects of Python
                continue
            call, start = getattr(comm, method), partial(comm.start, method)
            call(*args, **words)
            start(*args, **words).wait()
            called = path_of(lambda: call(*args, **words))  # noqa: B023
            started = path_of(lambda: start(*args, **words).wait())  # noqa: B023
            found.append((f"{method} {words}", called, started))
    return found


def test_a_call_like_an_earlier_one() -> None:
    for found in run_ranks(paths, 2):
        for call, called, started in found:
            method = call.partition(" ")[0]
            frames, crossings = called
            assert crossings == [method], call
            assert len(frames) <= 2, (call, frames)
            frames, crossings = started
            assert crossings == [method, "wait"], call
            assert len(frames) <= 4, (call, frames)


def imported_by_the_first_call(rank: int) -> list[str]:
    comm = collops.init()
    comm.barrier()
    before = set(sys.modules)
    comm.all_gatherv(X, [4, 4])
    return sorted(set(sys.modules) - before)


def test_the_first_call_of_a_rank_imports_nothing() -> None:
    assert run_ranks(imported_by_the_first_call, 2) == [[], []]
