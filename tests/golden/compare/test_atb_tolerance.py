"""ATB's tables: who is compared exactly, and where each limit lies."""

from __future__ import annotations

import numpy as np
import pytest
from golden.compare import compare
from golden.compare.atb_tolerance import COMPUTING, EXACT, MOVING, SCATTERING, tolerance
from golden.data.dtypes import DTYPES, from_float32


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", MOVING)
def test_moves_are_exact(op: str, dtype: str) -> None:
    assert tolerance("atb", op, dtype).limit is None


@pytest.mark.parametrize("op", [*SCATTERING, "all_reduce"])
def test_integers_and_extremes_are_exact(op: str) -> None:
    assert tolerance("atb", op, "int16").limit is None
    for reduce in ("max", "min"):
        assert tolerance("atb", op, "float16", reduce=reduce).limit is None
    assert tolerance("atb", op, "float16").limit is not None


@pytest.mark.parametrize(
    ("dtype", "terms", "power"),
    [
        ("float16", 1, -8),
        ("float16", 2047, -8),
        ("float16", 2048, -7),
        ("bfloat16", 1, -7),
        ("bfloat16", 2048, -6),
        ("float32", 2047, -11),
        ("float32", 2048, -10),
        ("float32", 16384, -9),
    ],
)
@pytest.mark.parametrize("op", COMPUTING)
def test_limits_of_computing_operators(op: str, dtype: str, terms: int, power: int) -> None:
    limit = tolerance("atb", op, dtype, terms=terms).limit
    assert limit is not None
    values = np.array([0.0, -0.5, 1.0, 100.0])
    assert limit(values).tolist() == [2.0**power * size for size in (1, 1, 1, 100)]


def test_an_error_on_one_side_exceeds_the_balance() -> None:
    expected = np.ones(1000, np.float32)
    allowed = tolerance("atb", "linear_parallel", "float32")
    for shift, accepted in ((2.0**-15, True), (2.0**-13, False)):
        result = compare([expected + np.float32(shift)], [expected], "float32", tolerance=allowed)
        assert result.accepted == accepted
        assert result.wrong == 0
        assert result.differing == 1000
    assert "error balance is 0.000122, at most 6.1e-05" in result.text()
    zigzag = expected + np.float32(2.0**-13) * np.where(np.arange(1000) % 2, 1, -1)
    assert compare([zigzag.astype(np.float32)], [expected], "float32", tolerance=allowed).accepted


@pytest.mark.parametrize(("dtype", "floor"), [("float16", 2.0**-11), ("float32", 2.0**-14)])
def test_ratios_of_a_scatter(dtype: str, floor: float) -> None:
    rng = np.random.default_rng(3)
    expected = rng.uniform(50, 100, 4000).astype(dtype)
    allowed = tolerance("atb", "reduce_scatter_v", dtype)
    for factor, accepted in ((1.0, True), (1.9, True), (2.5, False)):
        noise = 1 + factor * floor * rng.choice([-1, 1], 4000)
        got = (expected.astype(np.float64) * noise).astype(dtype)
        assert compare([got], [expected], dtype, tolerance=allowed).accepted == accepted
    one = expected.astype(np.float64)
    one[7] *= 1 + 11 * floor
    result = compare([one.astype(dtype)], [expected], dtype, tolerance=allowed)
    assert (result.accepted, result.wrong, result.failed_measures) == (False, 1, ())


@pytest.mark.parametrize(
    ("dtype", "small", "large", "share"),
    [("float32", 1e-4, 3e-4, 0.0001), ("float16", 1e-3, 4e-3, 0.001), ("int8", 1, 2, 0.001)],
)
def test_the_older_standard_lets_a_few_exceed(
    dtype: str, small: float, large: float, share: float
) -> None:
    expected = np.ones(20_000, dtype)
    allowed = tolerance("atb-percent", "linear_parallel", dtype)
    got = (expected + small).astype(dtype)
    assert compare([got], [expected], dtype, tolerance=allowed).accepted
    few = round(share * got.size)
    got[:few] = (expected + large).astype(dtype)[:few]
    result = compare([got], [expected], dtype, tolerance=allowed)
    assert (result.accepted, result.wrong) == (True, few)
    got[few] = got[0]
    assert not compare([got], [expected], dtype, tolerance=allowed).accepted


def test_a_number() -> None:
    allowed = tolerance("0.5", "all_gather", "bfloat16")
    expected = from_float32(np.array([0, 10], np.float32))
    inside = from_float32(np.array([0.5, 15], np.float32))
    outside = from_float32(np.array([0.51, 15], np.float32))
    assert compare([inside], [expected], "bfloat16", tolerance=allowed).accepted
    assert compare([outside], [expected], "bfloat16", tolerance=allowed).wrong == 1
    assert tolerance("exact", "broadcast", "int8") is EXACT


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("near", "broadcast", "int8"), "tolerance 'near' is unknown; use exact, atb, atb-percent"),
        (("-1", "broadcast", "int8"), "tolerance '-1' is unknown"),
        (("nan", "broadcast", "int8"), "tolerance 'nan' is unknown"),
        (("atb", "AllGather", "int8"), "operator 'AllGather' is unknown; use one of all_gather_v"),
        (("atb", "all_reduce", "float64"), "ATB has no tolerance for float64; use exact or a"),
    ],
)
def test_unknown_arguments_are_refused(arguments: tuple[str, str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tolerance(*arguments)
    with pytest.raises(ValueError, match="reduction 'mean' is unknown"):
        tolerance("atb", "all_reduce", "float16", reduce="mean")
