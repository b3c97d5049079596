"""Partial sums on every kind of simulated device: types that it does not add, and sums in place.
Golden's leaves are conformance's."""

from __future__ import annotations

import re

import numpy as np
import pytest
from collops.golden.data import fill
from collops.golden.data.reduction import add_leaves

import collops
from collops.testing import run_ranks
from patience import patience
from tests.conformance.devices import BACKENDS_HERE, HERE
from tests.conformance.runs import Run

LIMIT_S = patience(60)


@pytest.mark.parametrize("backend", BACKENDS_HERE)
def test_other_types_are_refused_on_every_rank(backend: str) -> None:
    run = Run("plain", 2, HERE, backend=backend)
    words = f"backend {backend} adds partials of float32, float16 and bfloat16 alone, got "

    def work(rank: int) -> list[float]:
        comm = run.join(rank)
        for dtype in ("int32", "float64"):
            x = run.place(comm, np.ones(3, dtype))
            with pytest.raises(collops.UnsupportedError, match=re.escape(words + dtype)):
                comm.all_reduce(partials=[x], leaves=2)
        x = run.place(comm, np.full(3, rank + 1.0, np.float32))
        values: list[float] = run.values(comm.all_reduce(partials=[x], leaves=2)).tolist()
        return values

    assert run_ranks(work, 2, timeout=LIMIT_S, env=run.environment) == [[3.0] * 3] * 2


@pytest.mark.parametrize("backend", BACKENDS_HERE)
def test_a_partial_may_be_the_result(backend: str) -> None:
    run = Run("plain", 2, HERE, backend=backend)
    leaves = [fill((5, 3), "float32", leaf, kind="random") for leaf in range(5)]
    wanted = add_leaves(leaves, "float32")

    def work(rank: int) -> bool:
        comm = run.join(rank)
        own = [run.place(comm, leaf) for leaf in (leaves[:3], leaves[3:])[rank]]
        comm.all_reduce(partials=own, leaves=5, out=own[1])
        return bool(run.values(own[1]).tobytes() == wanted.tobytes())

    assert run_ranks(work, 2, timeout=LIMIT_S, env=run.environment) == [True, True]
