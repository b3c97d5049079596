"""The picture of an error: nothing gets lost in it; without matplotlib there is a clear line."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from golden.compare import compare
from golden.compare.plot import (
    _labels,
    error_grid,
    save_plot,
)
from golden.data import fill
from golden.data.dtypes import DTYPES
from golden.operators.output_layout import gather_layout


def test_a_small_tensor_is_shown_as_it_is() -> None:
    error = np.arange(6, dtype=np.float64).reshape(3, 2)
    grid = error_grid(error, error > 1)
    assert np.array_equal(grid, [[np.nan, np.nan], [2, 3], [4, 5]], equal_nan=True)


@pytest.mark.parametrize("shape", [(1, 7), (100, 3), (7, 700), (5000,), (37, 5, 11), (1, 1), ()])
def test_one_wrong_element_is_never_lost(shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape))
    for at in {0, size // 3, size - 1}:
        error = np.zeros(size)
        error[at] = 0.25
        grid = error_grid(error.reshape(shape), (error > 0).reshape(shape), most=16)
        assert max(grid.shape) <= 64
        assert np.nansum(grid) == 0.25
        assert np.isnan(grid).sum() == grid.size - 1


def test_an_error_of_zero_and_an_infinite_one_are_shown() -> None:
    error = np.array([[0.0, np.inf, 1.0]])
    grid = error_grid(error, np.array([[True, True, False]]), most=2)
    assert grid.tolist()[0][0] == 0.0
    assert np.isinf(grid[0, 1])


def picture(path: Path) -> tuple[int, int]:
    """Width and height of a PNG."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:])
    return width, height


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_picture_of_every_dtype(tmp_path: Path, dtype: str) -> None:
    pytest.importorskip("matplotlib")
    right = [fill((9, 4), dtype, rank, kind="special") for rank in range(2)]
    got = [right[1], right[1]]
    result = compare(got, right, dtype)
    file = tmp_path / "error.png"
    layout = gather_layout([13, 20])
    names = ["rank 0", "rank 1"]
    save_plot(file, got, right, result.masks, dtype, layout=layout, names=names, title="x" * 300)
    width, height = picture(file)
    assert width > 500 and height > 300


def test_labels_of_blocks_share_a_line_where_they_would_touch() -> None:
    blocks = gather_layout([1, 1, 1, 1, 96]).of(0)
    assert [ranks for _, ranks in _labels(100, 1, blocks)] == [[0, 1, 2, 3], [4]]
