"""A call of the plain level like an earlier one crosses into the core once, through two frames."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience

X = np.arange(8, dtype=np.float32).reshape(4, 2)
WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)
RESIDUAL = np.arange(3, dtype=np.float32)
GRID = {"ag_dim": 2, "rs_dim": 1}

CALLS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "all_gather": ("all_gather", (X,), {}),
    "all_gatherv": ("all_gatherv", (X, [4, 4]), {}),
    "all_gatherv, no sizes": ("all_gatherv", (X,), {}),
    "all_gatherv, dim 1": ("all_gatherv", (X, [2, 2]), {"dim": 1}),
    "all_gatherv, list": ("all_gatherv", ([X, X.astype("i2")], [4, 4]), {}),
    "all_gatherv, bytes": ("all_gatherv", (X.astype("S3"), [4, 4]), {}),
    "all_reduce": ("all_reduce", (X,), {"op": "max"}),
    "all_to_allv": ("all_to_allv", (X, [2, 2], [2, 2]), {}),
    "all_to_allv, no sizes": ("all_to_allv", (X, [2, 2]), {}),
    "barrier": ("barrier", (), {}),
    "broadcast": ("broadcast", (X.copy(),), {"root": 1}),
    "gatherv": ("gatherv", (X, [4, 4]), {"root": 1}),
    "gatherv, no sizes": ("gatherv", (X,), {}),
    "reduce": ("reduce", (X,), {"root": 1}),
    "reduce_scatter": ("reduce_scatter", (X,), {}),
    "reduce_scatterv": ("reduce_scatterv", (X, [1, 3]), {}),
    "reduce_scatterv, dim 1": ("reduce_scatterv", (X,), {"dim": 1}),
    "reduce_scatterv, list": ("reduce_scatterv", ([X, X[:1]],), {}),
    "scatterv": ("scatterv", (X, [1, 3]), {}),
    "all_gather_matmul": ("all_gather_matmul", (X, WEIGHT), {}),
    "all_gather_matmul, rows": ("all_gather_matmul", (X, WEIGHT), {"gather_rows": [4, 4]}),
    "matmul_reduce_scatter": ("matmul_reduce_scatter", (X, WEIGHT), {"op": "avg"}),
    "matmul_all_reduce": ("matmul_all_reduce", (X, WEIGHT), {"residual": RESIDUAL}),
    "both": ("all_gather_matmul_reduce_scatter", (X, WEIGHT), GRID),
}


def path_of(call: Callable[[], Any]) -> tuple[list[str], list[str]]:
    """The Python frames of `call`, and the functions of the extension module that it calls."""
    frames: list[str] = []
    crossings: list[str] = []

    def note(frame: Any, event: str, function: Any) -> None:
        if event == "call":
            frames.append(frame.f_code.co_name)
        elif event == "c_call" and function.__module__ == "collops._core":
            crossings.append(function.__name__)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return frames[1:], crossings  # without the frame of `call` itself


def paths(rank: int, name: str) -> list[tuple[list[str], list[str]]]:
    method, args, words = CALLS[name]
    with collops.init() as comm:
        getattr(comm, method)(*args, **words)
        comm.start(method, *args, **words).wait()
        return [
            path_of(lambda: getattr(comm, method)(*args, **words)),
            path_of(lambda: comm.start(method, *args, **words).wait()),
        ]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_like_an_earlier_one(name: str) -> None:
    method = CALLS[name][0]
    for called, started in run_ranks(paths, 2, name):
        frames, crossings = called
        assert crossings == [method]
        assert len(frames) <= 2, frames
        frames, crossings = started
        assert crossings == [method, "wait"]
        assert len(frames) <= 4, frames


def first_call(rank: int) -> float:
    comm = collops.init()
    comm.barrier()
    begin = time.perf_counter()
    comm.all_gatherv(X, [4, 4])
    return time.perf_counter() - begin


def test_the_first_call_of_a_rank_imports_nothing_that_takes_long() -> None:
    # The fastest of several programs: the ranks share the cores with other programs.
    seconds = min(max(run_ranks(first_call, 2)) for _ in range(5))
    assert seconds < patience(0.003)
