"""Lists at the plain level: several tensors to gather, one block per destination to reduce."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import collops
from collops.core import core
from collops.testing import run_ranks

SIZES = [2, 0, 3]


def tensors_of(rank: int, rows: int) -> list[Any]:
    """Of three types and shapes, different in every rank and position."""
    numbers = np.arange(rows * 6) + 31 * rank
    return [
        numbers.reshape(rows, 2, 3).astype(np.float32),
        numbers[:rows].astype(ml_dtypes.bfloat16),
        numbers.astype(np.uint8).view("S3").reshape(rows, 2),
    ]


@pytest.mark.parametrize("sizes", [None, SIZES])
@pytest.mark.parametrize("kind", [list, tuple])
def test_all_gatherv_of_several_tensors(kind: Any, sizes: list[int] | None) -> None:
    def work(rank: int) -> bool:
        comm = collops.init()
        every = [tensors_of(r, size) for r, size in enumerate(SIZES)]
        want = [np.concatenate(parts) for parts in zip(*every, strict=True)]
        outs = [np.full_like(whole, b"x" if whole.dtype.kind == "S" else 7) for whole in want]
        fresh = comm.all_gatherv(kind(every[rank]), sizes)
        given = comm.all_gatherv(kind(every[rank]), sizes, out=kind([*outs[:2], None]))
        assert type(fresh) is list
        assert type(given) is list
        assert given[0] is outs[0]
        assert given[1] is outs[1]
        return all(
            got.dtype == whole.dtype and got.tobytes() == whole.tobytes()
            for results in (fresh, given)
            for got, whole in zip(results, want, strict=True)
        )

    assert run_ranks(work, 3) == [True] * 3


def test_negative_dims_count_from_the_end_of_each_tensor() -> None:
    def work(rank: int) -> list[tuple[int, ...]]:
        comm = collops.init()
        tensors = [np.zeros((4, rank + 1)), np.zeros(rank + 1), np.zeros((2, 3, rank + 1), "i2")]
        return [whole.shape for whole in comm.all_gatherv(tensors, dim=-1)]

    assert run_ranks(work, 2) == [[(4, 3), (3,), (2, 3, 3)]] * 2


def test_a_list_costs_one_exchange() -> None:
    def work(rank: int) -> list[int]:
        comm = collops.init()
        tensors = [np.zeros((2, k), np.int8) for k in (1, 10, 100)]
        moved = []
        for sizes in (None, [2, 2]):
            before = core().copied_bytes()
            comm.all_gatherv(tensors, sizes)
            moved.append(core().copied_bytes() - before)
        return moved

    for exchanged, given in run_ranks(work, 2):
        # Own block into the slot and the output, the other's into the output: three copies.
        assert given == 3 * 222
        # The rows of a list are told once, over the board, where no tensor is copied.
        assert exchanged == given


def test_nothing_moves_if_one_tensor_is_wrong() -> None:
    def work(rank: int) -> list[Any]:
        comm = collops.init()
        outs = [np.full((4, 2), -1.0), np.full((4, 2), -1.0)]
        second = np.ones((2, 2))
        if rank == 1:
            second = np.ones((4, 2))[::2]
        with pytest.raises(collops.Error) as caught:
            comm.all_gatherv([np.ones((2, 2)), second], [2, 2], out=outs)
        again = comm.all_gatherv([np.array([rank])], [1, 1])
        return [caught.value.code, float(outs[0].max()), again[0].tolist()]

    assert run_ranks(work, 2) == [[102, -1.0, [0, 1]], [14, -1.0, [0, 1]]]
