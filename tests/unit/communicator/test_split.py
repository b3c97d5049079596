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


@MODES
def test_parts_of_parts_live_side_by_side(threads: bool) -> None:
    def work(rank: int) -> list[Any]:
        comm = collops.init()
        levels = [comm]
        for depth in range(6):
            part = levels[-1].split(color=rank // (8 >> (depth // 2)), key=rank)
            assert part is not None
            levels.append(part)
        found = []
        for _ in range(2):  # every level still works after the others were used
            found.append([sum(members(part, rank)) for part in levels])
            x = np.ones(len(levels)) * rank
            for part in levels:
                part.reduce_scatterv(x)
        assert found[0] == found[1]
        return found[0]

    whole, half, own = sum(range(4)), [1, 1, 5, 5], [0, 1, 2, 3]
    results = run_ranks(work, 4, threads=threads)
    assert results == [[whole] * 5 + [half[r], half[r]] for r in range(4)]
    assert own == list(range(4))


def test_a_part_may_be_closed_and_made_again() -> None:
    def work(rank: int) -> list[Any]:
        with collops.init() as comm:
            found = []
            for _ in range(3):
                part = comm.split(0)
                assert part is not None
                with part:
                    found.append(members(part, rank))
                with pytest.raises(collops.AbortedError, match="called close"):
                    part.barrier()
            comm.barrier()
            return found

    assert run_ranks(work, 2) == [[[0, 1]] * 3] * 2


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


@pytest.mark.parametrize(
    ("color", "key", "message"),
    [
        (1.5, 0, "split: color must be a whole number, got 1.5"),
        ("a", 0, "split: color must be a whole number, got 'a'"),
        (0, None, "split: key must be a whole number, got None"),
        (2**31, 0, "split: color must be from 0 to 2147483647, got 2147483648"),
        (0, -(2**31), "split: key must be from -2147483647 to 2147483647, got -2147483648"),
    ],
)
def test_a_wrong_color_or_key_is_refused(color: Any, key: Any, message: str) -> None:
    def work(rank: int) -> list[Any]:
        comm = collops.init()
        with pytest.raises(collops.Error) as caught:
            comm.split(color if rank == 1 else 0, key if rank == 1 else 0)
        part = comm.split(0)
        return [caught.value.code, caught.value.message, members(part, rank)]

    first, second = run_ranks(work, 2)
    assert second == [1, message, [0, 1]]
    assert first[0] == 102
    assert message in first[1]
    assert first[2] == [0, 1]


def test_windows_of_a_part() -> None:
    def work(rank: int) -> float:
        comm = collops.init()
        part = comm.split(0, key=-rank)
        assert part is not None
        x = part.empty(50_000, np.float32)
        x[:] = rank
        out = part.all_gatherv(x)
        return float(out[0] - out[-1])

    assert run_ranks(work, 3) == [2.0] * 3
