"""split: parts by color and key, several levels deep, beside the parent, and in structs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

MODES = pytest.mark.parametrize("threads", [False, True], ids=["processes", "threads"])


def members(part: collops.Communicator | None, rank: int) -> Any:
    """The part's ranks as the parent numbers them."""
    return None if part is None else part.all_gatherv(np.array([rank])).tolist()


@MODES
def test_colors_keys_and_order(threads: bool) -> None:
    def work(rank: int) -> list[Any]:
        comm = collops.init()
        by_color = comm.split(rank % 2)
        backward = comm.split(0, key=-rank)
        mixed = comm.split(color=rank // 2, key=[5, 1, 3, 3][rank])
        parts = [by_color, backward, mixed]
        assert all(part is not None and part is not comm for part in parts)
        return [(part.rank, part.size, members(part, rank)) for part in parts if part]

    assert run_ranks(work, 4, threads=threads) == [
        [(0, 2, [0, 2]), (3, 4, [3, 2, 1, 0]), (1, 2, [1, 0])],
        [(0, 2, [1, 3]), (2, 4, [3, 2, 1, 0]), (0, 2, [1, 0])],
        [(1, 2, [0, 2]), (1, 4, [3, 2, 1, 0]), (0, 2, [2, 3])],
        [(1, 2, [1, 3]), (0, 4, [3, 2, 1, 0]), (1, 2, [2, 3])],
    ]


@pytest.mark.parametrize("none", [None, -1, -(2**40)])
def test_a_rank_may_join_no_part(none: int | None) -> None:
    def work(rank: int) -> Any:
        comm = collops.init()
        part = comm.split(none if rank == 1 else 3)
        found = members(part, rank)
        return found, comm.all_gatherv(np.array([rank])).tolist(), comm.split(None)

    assert run_ranks(work, 3) == [
        ([0, 2], [0, 1, 2], None),
        (None, [0, 1, 2], None),
        ([0, 2], [0, 1, 2], None),
    ]


def test_a_part_outlives_its_parent() -> None:
    def work(rank: int) -> Any:
        with collops.init() as comm:
            part = comm.split(0, key=-rank)
        return members(part, rank)

    assert run_ranks(work, 2) == [[1, 0]] * 2


@MODES
def test_the_handle_of_a_part_works_in_structs(threads: bool) -> None:
    mode = collops.COMM_MULTI_THREAD if threads else collops.COMM_MULTI_PROCESS

    def work(rank: int) -> Any:
        comm = collops.init()
        part = comm.split(rank % 2)
        assert part is not None
        results = []
        for hccl_comm in (part.handle, part):
            param = collops.ReduceScatterVParam(
                rank=part.rank, hccl_comm=hccl_comm, backend="shm", comm_mode=mode
            )
            counts = np.array([2, 2])
            ins = [
                np.arange(4.0).reshape(2, 2) + rank,
                counts,
                np.array([0, 2]),
                counts[:1],
                np.empty(1, np.float16),
            ]
            [out] = collops.Operation(param).forward(ins)
            results.append(out.tolist())
        return results

    want = [[[2.0, 4.0]], [[4.0, 6.0]], [[6.0, 8.0]], [[8.0, 10.0]]]
    assert run_ranks(work, 4, threads=threads) == [[row, row] for row in want]
