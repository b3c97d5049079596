"""all_to_allv, gatherv, scatterv and reduce: kinds of tensors, one rank, what is not read."""

from __future__ import annotations

from typing import Any

import numpy as np

import collops
from collops.testing import run_ranks

X = np.arange(12, dtype=np.float32).reshape(6, 2)
SENDS = [1, 2, 3]


def test_scatterv_ignores_x_of_other_ranks() -> None:
    def work(rank: int) -> Any:
        with collops.init() as comm:
            given = [X, "anything", np.zeros(9)][rank]
            return comm.scatterv(given, SENDS).tolist()

    assert run_ranks(work, 3) == [X[:1].tolist(), X[1:3].tolist(), X[3:].tolist()]


def test_reduce_into_memory_of_the_root() -> None:
    def work(rank: int) -> tuple[Any, ...]:
        with collops.init() as comm:
            x, out = X + rank, np.full_like(X, -1)
            kept = X + rank
            first = comm.reduce(x, root=1, out=out)
            second = comm.reduce(kept, "max", 2, out=kept)
            own = (first is out, second is kept) if rank else (first, second)
            return own, out.tolist(), kept.tolist()

    total, largest, blank = (3 * X + 3).tolist(), (X + 2).tolist(), np.full_like(X, -1).tolist()
    assert run_ranks(work, 3) == [
        ((None, None), blank, X.tolist()),
        ((True, False), total, (X + 1).tolist()),
        ((False, True), blank, largest),
    ]


def test_no_array_is_copied_but_once() -> None:
    """The core counts what it copies: every rank takes what it receives, and nothing else."""
    from collops.core import core

    def work(rank: int) -> int:
        comm = collops.init()
        x = comm.empty((3, 100_000), np.float32)
        x[...] = rank
        out = comm.empty((3, 100_000), np.float32)
        comm.all_to_allv(x, [1, 1, 1], [1, 1, 1], out)
        before = core().copied_bytes()
        comm.all_to_allv(x, [1, 1, 1], [1, 1, 1], out)
        return int(core().copied_bytes() - before)

    assert run_ranks(work, 3) == [1_200_000] * 3
