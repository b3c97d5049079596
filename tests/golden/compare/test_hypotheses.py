"""Outputs made wrong in one way each get the sentence of that way, and no others do.

The wrong data are made by plain numpy here, not by golden's own hypotheses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden.cases import all_cases, all_outputs, case_bounds, case_layout, inputs
from golden.compare import Comparison, compare
from golden.explain import KINDS
from golden.operators.linear_parallel.quantised import scale_values
from golden.operators.output_layout import gather_layout, scatter_layout
from golden.operators.table import operator_of

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(42)
FLOATS = [RNG.uniform(-3, 3, (6, 4)).astype(np.float32) for _ in range(3)]
HALVES = [(100 * x).astype(np.float16) for x in FLOATS]
INTS = [RNG.integers(-99, 99, (6, 4)).astype(np.int32) for _ in range(3)]
MATRIX = RNG.uniform(-3, 3, (6, 4)).astype(np.float32)


def said(result: Comparison) -> str:
    """The sentence of a comparison, whose kind is a known one."""
    assert not result.accepted
    assert result.diagnosis.kind in KINDS
    return result.diagnosis.text


def reduced(parts: list[Array], got: Array, op: str = "sum") -> str:
    """What is said of an all_reduce's output on every rank."""
    dtype = str(parts[0].dtype)
    layout = scatter_layout(parts, [parts[0].size] * 3, [0] * 3, op)
    wide = [p.astype(np.float32) if dtype == "float16" else p for p in parts]
    rights = {"sum": wide[0] + wide[1] + wide[2], "max": np.maximum.reduce(wide)}
    if dtype != "int32":
        rights["avg"] = rights["sum"] / np.float32(3)
    right = rights[op].astype(dtype)
    return said(compare([got] * 3, [right] * 3, dtype, layout=layout))


def in_float16(parts: list[Array]) -> Array:
    return (parts[0] + parts[1]) + parts[2]


@pytest.mark.parametrize(
    ("parts", "got", "op", "text"),
    [
        (FLOATS, sum(FLOATS[1:], FLOATS[0]) / np.float32(3), "sum", "avg in place of sum"),
        (FLOATS, np.maximum.reduce(FLOATS), "sum", "max in place of sum"),
        (INTS, np.minimum.reduce(INTS), "max", "min in place of max"),
        (FLOATS, sum(FLOATS[1:], FLOATS[0]), "avg", "sum in place of avg"),
        (INTS, sum(INTS[1:], INTS[0]), "max", "sum in place of max"),
        (FLOATS, FLOATS[1], "sum", "nothing was reduced: the elements are those of rank 1"),
    ],
)
def test_another_reduction(parts: list[Array], got: Array, op: str, text: str) -> None:
    assert reduced(parts, got, op) == f"wrong reduction: {text} in all outputs"


def test_a_rank_that_is_added_twice() -> None:
    got = INTS[0] + INTS[1] + INTS[2] + INTS[1]
    assert reduced(INTS, got) == "repeated rank 1: its elements are twice in the sum in all outputs"
    got = (FLOATS[0] + FLOATS[1] + FLOATS[1] + FLOATS[2]) / np.float32(3)
    assert reduced(FLOATS, got, "avg") == (
        "repeated rank 1: its elements are twice in the sum, which was divided by 3 in all outputs"
    )
    got = INTS[0] + 3 * INTS[1] + INTS[2]
    assert reduced(INTS, got) == "none was recognised"


def test_a_sum_that_is_accumulated_in_float16() -> None:
    text = "rounding: the sum was accumulated in float16, not in float32 in all outputs"
    assert reduced(HALVES, in_float16(HALVES)) == text
    # In another order it is a rounding, but not this one.
    assert "accumulated" not in reduced(HALVES, HALVES[2] + HALVES[1] + HALVES[0])


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "int64"])
def test_swapped_bytes(dtype: str) -> None:
    right = (100 * MATRIX).astype(dtype)
    text = said(compare([right.byteswap()], [right], dtype, labels=[""]))
    assert text.startswith("byte order: the bytes of each element are swapped")


def test_a_transposed_matrix() -> None:
    got = np.ascontiguousarray(MATRIX.T)
    text = said(compare([got.reshape(6, 4)], [MATRIX], "float32", labels=[""]))
    assert text == ("transposed: the elements are right, but lie column by column in the output")
    result = compare([got], [MATRIX], "float32", labels=[""])
    assert result.text() == (
        "different: shape [4, 6], expected [6, 4]\n"
        "pattern: wrong shape: the output is transposed; all else is right"
    )


def test_a_row_of_nan() -> None:
    got = MATRIX.copy()
    got[2] = np.nan
    text = said(compare([got], [MATRIX], "float32", labels=[""]))
    assert text == "NaN: row 2 of the output is NaN; all else is right"
    got[4, 1] = np.nan
    text = said(compare([got], [MATRIX], "float32", labels=[""]))
    assert text == "NaN: rows 2 and 4 of the output have NaN; all else is right"
    got[0, 0] = 7
    assert said(compare([got], [MATRIX], "float32", labels=[""])) == "none was recognised"


BLOCKS = gather_layout([8, 4, 12])
PADDED = np.zeros((9, 4), np.float32)
PADDED[0:2], PADDED[3:4], PADDED[6:9] = MATRIX[0:2], MATRIX[2:3], MATRIX[3:6]


@pytest.mark.parametrize(
    ("got", "blocks", "text"),
    [
        (np.delete(MATRIX, [2], axis=0), True, "rank 1's block (row 2) is missing"),
        (MATRIX[:3], True, "rank 2's block (rows 3..5) is missing"),
        (np.delete(MATRIX, [1, 2], axis=0), False, "rows 1..2 of the expected ones are missing"),
        (np.insert(MATRIX, [2], MATRIX[5:], axis=0), True, "row 2 is too many"),
        (MATRIX.reshape(8, 3), False, "only the shape differs, the elements are in order"),
    ],
)
def test_a_wrong_shape(got: Array, blocks: bool, text: str) -> None:
    layout = BLOCKS if blocks else None
    result = compare([got], [MATRIX], "float32", labels=[""], layout=layout)
    assert said(result) == f"wrong shape: {text}; all else is right"


def test_blocks_that_are_padded_to_the_largest() -> None:
    result = compare([PADDED], [MATRIX], "float32", labels=[""], layout=BLOCKS)
    assert said(result) == (
        "wrong shape: every block is padded to 12 elements: rank 0's by 4 and rank 1's by 8"
    )
    other = PADDED.copy()
    other[7] = 1
    result = compare([other], [MATRIX], "float32", labels=[""], layout=BLOCKS)
    assert result.text() == "different: shape [9, 4], expected [6, 4]"


def test_a_wrong_shape_of_other_elements_is_not_explained() -> None:
    result = compare([MATRIX[:5] * 2], [MATRIX], "float32", labels=[""], layout=BLOCKS)
    assert result.text() == "different: shape [5, 4], expected [6, 4]"


PARAMS = {"rankSize": 2, "type": 0, "transWeight": False, "hasResidual": True}
XS = [RNG.uniform(-1, 1, (5, 64)).astype(np.float16) for _ in range(2)]
WEIGHTS = [RNG.uniform(-1, 1, (64, 64)).astype(np.float16) for _ in range(2)]
BIASES = [RNG.uniform(-9, 9, (64,)).astype(np.float16) for _ in range(2)]


def products() -> list[Array]:
    """Each rank's product, in float32."""
    pairs = zip(XS, WEIGHTS, strict=True)
    return [x.astype(np.float32) @ w.astype(np.float32) for x, w in pairs]


def product_said(got: list[Array], *, exactly: bool = False) -> str:
    """What is said of the outputs of a linear_parallel that adds products and then a bias."""
    operator = operator_of("linear_parallel")
    given = list(zip(XS, WEIGHTS, BIASES, strict=True))
    right = [own[0] for own in operator.outputs(PARAMS, given)]
    assert operator.bounds is not None
    bounds = None if exactly else operator.bounds(PARAMS, given)
    how = {"bounds": bounds, "layout": operator.layout(PARAMS, given)}
    return said(compare([one.astype(np.float16) for one in got], right, "float16", **how))


def test_a_bias_that_is_missing_or_added_twice() -> None:
    total = sum(products())
    text = product_said([total + 2 * b.astype(np.float32) for b in BIASES])
    assert text == "wrong residual: the residual was added twice in all outputs"
    assert product_said([total] * 2) == "wrong residual: the residual is missing in all outputs"
    assert product_said([total + 3 * b.astype(np.float32) for b in BIASES]) == "none was recognised"


def test_a_weight_that_is_read_transposed() -> None:
    pairs = zip(XS, WEIGHTS, strict=True)
    total = sum(x.astype(np.float32) @ w.T.astype(np.float32) for x, w in pairs)
    text = product_said([total + b for b in BIASES])
    assert text == "transposed: the weight was read transposed in all outputs"


def test_products_that_are_accumulated_or_rounded_in_float16() -> None:
    sums = []
    for x, weight in zip(XS, WEIGHTS, strict=True):
        one = np.zeros((5, 64), np.float16)
        for k in range(64):
            term = x[:, k : k + 1].astype(np.float32) * weight[k].astype(np.float32)
            one = (one + term).astype(np.float16)
        sums.append(one.astype(np.float32))
    text = product_said([sums[0] + sums[1] + b for b in BIASES], exactly=True)
    assert text == (
        "rounding: the products were accumulated in float16, not in float32 in all outputs"
    )
    parts = [one.astype(np.float16).astype(np.float32) for one in products()]
    text = product_said([parts[0] + parts[1] + b for b in BIASES], exactly=True)
    assert text == (
        "rounding: each rank's product was rounded to float16 before they were added in all outputs"
    )


def test_the_bias_of_w8a8_that_is_added_twice() -> None:
    [case] = all_cases("linear_parallel", text="p2.quantised-w8a8-pure-channel-full")
    got = []
    for own in inputs(case):
        total = own["x"].astype(np.int64) @ own["weight"].astype(np.int64).T
        total += 2 * own["bias"].reshape(1, -1)
        got.append((total.astype(np.float32) * scale_values(own["scale"])).astype(np.float16))
    right = [own[0] for own in all_outputs(case)]
    how = {"bounds": case_bounds(case), "layout": case_layout(case)}
    text = said(compare(got, right, case.output_dtype, **how))
    assert text == "wrong bias: the bias was added twice in all outputs"
