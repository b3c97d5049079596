"""On windows an AllGatherV moves each byte once, and no byte too early."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collops
from collops.core import core
from collops.testing import run_ranks

ELEMENTS = 300_000
SHARES = {2: [3, 5], 3: [0, 1, 6], 4: [1, 2, 3, 4]}


@pytest.mark.parametrize("ranks", SHARES)
def test_each_byte_is_copied_once(ranks: int) -> None:
    sizes = [ELEMENTS // sum(SHARES[ranks]) * share for share in SHARES[ranks]]

    def block(rank: int, step: int) -> Any:
        values = np.arange(sizes[rank], dtype=np.float32) % 97 + 1000 * rank
        values[-1:] = step + 0.5 * rank
        return values

    def work(rank: int) -> list[tuple[int, bool]]:
        comm = collops.init()
        x = comm.empty(sizes[rank], np.float32)
        out = np.full(sum(sizes), -1, np.float32)
        x[:] = block(rank, 0)
        seen = []
        for step in range(3):
            before = core().copied_bytes()
            x[-1:] = step + 0.5 * rank  # just before the call
            comm.all_gatherv(x, sizes, out=out)
            moved = core().copied_bytes() - before
            want = np.concatenate([block(r, step) for r in range(ranks)])
            seen.append((moved, np.array_equal(out, want)))
        return seen

    for seen in run_ranks(work, ranks):
        assert seen == [(4 * sum(sizes), True)] * 3


def test_the_counter_sees_a_second_copy() -> None:
    def work(rank: int) -> int:
        comm = collops.init()
        x, out = np.ones(ELEMENTS, np.float32), np.empty(2 * ELEMENTS, np.float32)
        before = core().copied_bytes()
        comm.all_gatherv(x, [ELEMENTS] * 2, out=out)
        return int(core().copied_bytes() - before)

    for moved in run_ranks(work, 2):
        assert moved > 4 * 2 * ELEMENTS  # plain memory is staged: one more copy of the own block


def test_a_window_of_one_domain_serves_its_structs() -> None:
    def work(rank: int) -> bool:
        comm = collops.init(comm_domain="dp")
        op = collops.Operation(
            collops.AllGatherVParam(rank=rank, rank_size=2, backend="shm", comm_domain="dp")
        )
        x = comm.empty(ELEMENTS, np.float32)
        x[:] = rank + 1
        counts = np.array([ELEMENTS] * 2)
        out = np.empty(2 * ELEMENTS, np.float32)
        ins = [x, counts[:1], counts, counts * [0, 1], np.empty(2 * ELEMENTS, np.float16)]
        op.get_workspace_size(ins, [out])
        before = core().copied_bytes()
        op.execute(ins, [out])
        right = bool((out[:ELEMENTS] == 1).all() and (out[ELEMENTS:] == 2).all())
        return right and core().copied_bytes() - before == out.nbytes

    assert run_ranks(work, 2) == [True, True]
