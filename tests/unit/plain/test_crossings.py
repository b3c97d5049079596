"""A call of the plain level that was made before crosses into the core once, whatever it does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

X = np.arange(8, dtype=np.float32).reshape(4, 2)
WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)
RESIDUAL = np.arange(3, dtype=np.float32)
GRID = {"ag_dim": 2, "rs_dim": 1}

CALLS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "all_gather": ("all_gather", (X,), {}),
    "all_gatherv": ("all_gatherv", (X, [4, 4]), {}),
    "all_reduce": ("all_reduce", (X,), {"op": "max"}),
    "all_to_allv": ("all_to_allv", (X, [2, 2], [2, 2]), {}),
    "broadcast": ("broadcast", (X.copy(),), {"root": 1}),
    "gatherv": ("gatherv", (X, [4, 4]), {"root": 1}),
    "reduce": ("reduce", (X,), {"root": 1}),
    "reduce_scatter": ("reduce_scatter", (X,), {}),
    "reduce_scatterv": ("reduce_scatterv", (X, [1, 3]), {}),
    "all_gather_matmul": ("all_gather_matmul", (X, WEIGHT), {}),
    "all_gather_matmul, rows": ("all_gather_matmul", (X, WEIGHT), {"gather_rows": [4, 4]}),
    "matmul_reduce_scatter": ("matmul_reduce_scatter", (X, WEIGHT), {"op": "avg"}),
    "matmul_all_reduce": ("matmul_all_reduce", (X, WEIGHT), {"residual": RESIDUAL}),
    "both": ("all_gather_matmul_reduce_scatter", (X, WEIGHT), GRID),
}


def crossings(call: Callable[[], Any]) -> list[str]:
    """The functions of the extension module that `call` calls."""
    made: list[str] = []

    def note(_: Any, event: str, function: Any) -> None:
        if event == "c_call" and function.__module__ == "collops._core":
            made.append(function.__name__)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return made


def work(rank: int, name: str) -> list[str]:
    method, args, words = CALLS[name]
    with collops.init() as comm:
        getattr(comm, method)(*args, **words)
        return crossings(lambda: getattr(comm, method)(*args, **words))


@pytest.mark.parametrize("name", CALLS)
def test_a_call_crosses_once(name: str) -> None:
    assert run_ranks(work, 2, name) == [["run"]] * 2
