"""The sentences about displaced blocks are true."""

from __future__ import annotations

import numpy as np
import pytest
from golden.compare import compare
from golden.data import fill
from golden.operators.output_layout import gather_layout

RIGHT = fill((30, 7), "float32", 0, kind="random")
FLAT = RIGHT.reshape(-1)
A, B, C = FLAT[:70], FLAT[70:105], FLAT[105:]
UNEVEN, EVEN = (70, 35, 105), (70, 70, 70)


@pytest.mark.parametrize(
    ("counts", "parts", "text"),
    [
        (UNEVEN, [np.roll(FLAT, 1)], "shifted block: all blocks lie 1 element too late"),
        (UNEVEN, [np.roll(FLAT, 3)], "all of the output is rotated by 3 elements towards the end"),
        (UNEVEN, [A, np.roll(B, 3), C], "rank 1's block is rotated by 3 elements towards the end"),
        (UNEVEN, [A, np.roll(B, -3), C], "is rotated by 3 elements towards the beginning"),
        (
            UNEVEN,
            [C, A, B],
            "swapped blocks: the blocks lie in another order: "
            "rank 2's block, rank 0's block and rank 1's block",
        ),
        (
            EVEN,
            [np.roll(FLAT, 70)],
            "the blocks lie in another order: rank 2's block, rank 0's block and rank 1's block",
        ),
        (
            EVEN,
            [FLAT[140:], FLAT[70:140], FLAT[:70]],
            "rank 0's block holds rank 2's block and rank 2's block holds rank 0's block",
        ),
        (UNEVEN, [A, A[:35], C], "repeated block: elements 70..104 hold what belongs at 0..34"),
    ],
)
def test_moved_blocks(counts: tuple[int, ...], parts: list[np.ndarray], text: str) -> None:
    got = np.concatenate(parts).reshape(RIGHT.shape)
    layout = gather_layout(counts)
    result = compare([got], [RIGHT], "float32", layout=layout, labels=[""])
    assert text in result.diagnosis.text


@pytest.mark.parametrize(
    ("wrong", "text"), [(1, "1 element is a zero"), (3, "3 elements are zeros")]
)
def test_the_sign_of_zero(wrong: int, text: str) -> None:
    right = RIGHT.copy()
    right[:3, 0] = 0
    got = right.copy()
    got[:wrong, 0] = -0.0
    diagnosis = compare([got], [right], "float32").diagnosis
    assert (diagnosis.kind, diagnosis.text) == (
        "sign of zero",
        f"sign of zero: {text} of the other sign",
    )
