"""The plain level's all_to_all_matmul and matmul_all_to_all against golden."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from collops.golden.operators import matmul_all_to_all as golden

import collops
from collops.testing import run_ranks
from patience import patience

LIMIT_S = patience(60)


def numbers(shape: tuple[int, ...], seed: int, dtype: Any = np.float32) -> Any:
    """Small whole numbers, whose sums are exact, different on every rank and in every position."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def bits(array: Any) -> Any:
    """An array as golden has it."""
    return array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array


# Of a rank: rows, columns of x, columns of the weight; more than one piece of each, and none.
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("backend", ["shm", "ucx"])
def test_both_ways(ranks: int, trans: bool, backend: str) -> None:
    def turned(weight: Any) -> Any:
        return np.ascontiguousarray(weight.T) if trans else weight

    def operands(case: tuple[int, int, int], dtype: Any, first: bool) -> Any:
        rows, columns, width = case
        k, n = (columns * ranks, width) if first else (columns, width * ranks)
        xs = [numbers((rows * (ranks if first else 1), columns), r, dtype) for r in range(ranks)]
        weights = [turned(numbers((k, n), 30 + r, dtype)) for r in range(ranks)]
        return xs, weights, [numbers((width,), 70 + r, dtype) for r in range(ranks)]

    cases = [
        ((rows, k, n), dtype)
        for dtype in (np.float32, np.float16, ml_dtypes.bfloat16)
        for rows, k, n in ((3, 5, 7), (0, 2, 2), (1, 1, 1), (49, 70, 200))
    ]
    cases.append(((4100, 3, 130), np.float32))
    wanted = []
    for case, dtype in cases:
        for first in (True, False):
            reference = golden.all_to_all_matmul if first else golden.matmul_all_to_all
            xs, weights, residuals = operands(case, dtype, first)
            lists = [list(map(bits, one)) for one in (xs, weights, residuals)]
            wanted += [reference(*lists[:2], trans_weight=trans)]
            wanted += [reference(*lists, trans_weight=trans)]

    def work(rank: int) -> int:
        done = iter(wanted)
        with collops.init(backend=backend) as comm:
            for case, dtype in cases:
                for first in (True, False):
                    x, weight, residual = (own[rank] for own in operands(case, dtype, first))
                    call = comm.all_to_all_matmul if first else comm.matmul_all_to_all
                    for added in (None, residual):
                        want = next(done)[rank]
                        y = call(x, weight, residual=added, trans_weight=trans)
                        if first:
                            want, exchanged = want
                            again, got = comm.all_to_all_matmul(
                                x, weight, residual=added, trans_weight=trans, return_x=True
                            )
                            assert got.dtype == x.dtype and np.array_equal(bits(got), exchanged)
                            assert again.tobytes() == y.tobytes()
                        assert y.dtype == x.dtype and np.array_equal(bits(y), want), case
                        out = np.full_like(y, 9)
                        words = {"residual": added, "trans_weight": trans, "out": out}
                        assert call(x, weight, **words) is out
                        assert out.tobytes() == y.tobytes()
        return 1

    assert run_ranks(work, ranks, timeout=LIMIT_S) == [1] * ranks
