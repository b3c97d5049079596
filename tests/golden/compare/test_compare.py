"""Comparison: how much differs, the largest errors and where, and the report."""

from __future__ import annotations

import numpy as np
import pytest
from golden.compare import compare
from golden.compare.atb_tolerance import tolerance
from golden.compare.report import shown
from golden.data import fill, poison
from golden.data.deviation import absolute_error, relative_error, ulp_error
from golden.data.dtypes import DTYPES, from_float32, storage

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(3))
def test_a_changed_element_of_random_tensors_is_found(dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ranks, rows, width = (int(rng.integers(low, 9)) for low in (1, 3, 1))
    right = [fill((rows, width), dtype, rank, kind="special") for rank in range(ranks)]
    if dtype == "bool":
        right = [fill((rows, width), dtype, rank) for rank in range(ranks)]
    assert compare(right, [array.copy() for array in right], dtype).accepted
    got = [array.copy() for array in right]
    places = set()
    for _ in range(int(rng.integers(1, 6))):
        place = tuple(int(rng.integers(n)) for n in (ranks, rows, width))
        bits = got[place[0]].view(f"u{storage(dtype).itemsize}")
        before = right[place[0]].view(f"u{storage(dtype).itemsize}")[place[1:]]
        bits[place[1:]] = before ^ bits.dtype.type(1)
        places.add(place)
    result = compare(got, right, dtype)
    nans = {p for p in places if right[p[0]][p[1:]] != right[p[0]][p[1:]]}
    if dtype == "bfloat16" or nans:
        assert 0 < result.wrong <= len(places)
    else:
        assert result.wrong == result.differing == len(places)
        assert {tuple(p) for r, m in enumerate(result.masks) for p in np.argwhere(m)} == {
            p[1:] for p in places
        }
    assert result.size == ranks * rows * width
    assert not result.accepted
    worst = result.extremes[0]
    assert (worst.kind, (worst.output, worst.row, worst.column) in places) == ("absolute", True)


def test_the_largest_errors_have_their_own_places() -> None:
    right = [np.array([[1.0, 1000.0, 2.0]] * 2, np.float32), np.zeros((1, 3), np.float32)]
    got = [array.copy() for array in right]
    got[0][1, 1] += 8
    got[0][0, 0] += 0.5
    got[1][0, 2] = 1e-30
    result = compare(got, right, "float32")
    found = {e.kind: (e.output, e.row, e.column, e.value) for e in result.extremes}
    assert found["absolute"] == (0, 1, 1, 8.0)
    assert found["relative"] == (1, 0, 2, INF)
    assert found["ULP"][:3] == (1, 0, 2)
    got[1][0, 2] = 0
    found = {e.kind: (e.row, e.column, e.value) for e in compare(got, right, "float32").extremes}
    assert found["relative"] == (0, 0, 0.5)
    assert found["ULP"] == (0, 0, 2.0**22)


def test_rows_and_columns_of_any_number_of_dims() -> None:
    right = np.zeros((2, 3, 4), np.int16)
    got = right.copy()
    got[1, 2, 1] = 7
    [worst, _] = compare([got], [right], "int16").extremes
    assert (worst.row, worst.column, worst.value, worst.got) == (1, 9, 7.0, "7")
    [worst, _] = compare([got.reshape(-1)], [right.reshape(-1)], "int16").extremes
    assert (worst.row, worst.column) == (21, 0)
    one = compare([np.array(3, np.int8)], [np.array(2, np.int8)], "int8")
    assert (one.wrong, one.extremes[0].row) == (1, 0)


def test_nan_and_infinity() -> None:
    right = np.array([NAN, INF, -INF, 1, NAN, 0.0], np.float32)
    same = right.copy()
    same[0] = -same[0]
    assert compare([same], [right], "float32").accepted
    got = np.array([1, INF, INF, NAN, NAN, -0.0], np.float32)
    result = compare([got], [right], "float32")
    assert result.masks[0].tolist() == [True, False, True, True, False, True]
    assert absolute_error(got, right, "float32").tolist() == [INF, 0, INF, INF, 0, 0]
    assert relative_error(got, right, "float32").tolist() == [INF, 0, INF, INF, 0, 0]
    ulps = ulp_error(got, right, "float32")
    assert ulps is not None
    assert ulps[[0, 3]].tolist() == [INF, INF]
    allowed = tolerance("1e30", "broadcast", "float32")
    close = compare([got], [right], "float32", tolerance=allowed).masks[0]
    assert close.tolist() == [True, False, True, True, False, False]


@pytest.mark.parametrize("dtype", ["int64", "uint8", "int8"])
def test_errors_of_integers_do_not_overflow(dtype: str) -> None:
    limits = np.iinfo(storage(dtype))
    a, b = (np.array([value], storage(dtype)) for value in (limits.max, limits.min))
    assert absolute_error(a, b, dtype).tolist() == [float(limits.max - limits.min)]
    assert absolute_error(b, a, dtype).tolist() == [float(limits.max - limits.min)]
    near = np.array([limits.max - 1], storage(dtype))
    assert absolute_error(a, near, dtype).tolist() == [1.0]


def test_a_bound_takes_the_place_of_the_tolerance() -> None:
    right, got = np.zeros(3, np.float64), np.array([1.0, 2.0, 3.0])
    result = compare([got], [right], "float64", bounds=[np.array([1.0, 2.0, 2.9])])
    assert (result.wrong, result.differing, result.tolerance) == (1, 3, "golden's bound")
    assert compare([got], [right], "float64", bounds=[np.full(3, np.inf)]).accepted


def test_other_shapes_and_numbers_of_outputs() -> None:
    a, b = np.zeros((2, 3), np.int8), np.zeros((3, 2), np.int8)
    result = compare([a, a], [a, b], "int8")
    assert not result.accepted
    assert result.text() == "different: rank 1 has shape [2, 3], expected [3, 2]"
    assert compare([a], [a, a], "int8").text() == "different: 1 outputs, expected 2"
    with pytest.raises(ValueError, match="bfloat16 is carried as uint16, got an array int8"):
        compare([a], [a], "bfloat16")


def test_nothing_at_all_is_equal() -> None:
    empty = np.zeros((0, 4), np.float16)
    assert compare([empty], [empty], "float16").text() == (
        "equal: 0 elements of float16, bit for bit"
    )
    allowed = tolerance("atb", "reduce_scatter", "float16")
    assert compare([empty], [empty], "float16", tolerance=allowed).accepted


def test_the_report() -> None:
    right = fill((40, 20), "float16", 0)
    got = right.copy()
    got[3, 4] = 0.5
    got[39] = poison((20,), "float16")
    text = compare([right, got], [right, right], "float16").text().splitlines()
    assert text[0] == "different: 21 of 1600 elements of float16, bit for bit"
    assert [line.split(" at ")[0] for line in text[1:4]] == [
        "largest absolute error 1982.5",
        "largest relative error 1.00025",
        "largest ULP error 40894",
    ]
    assert "at rank 1 row 3 column 4: got 0.5, expected -1982.0" in text[1]
    assert text[4:] == [
        "pattern: none was recognised",
        "first rows that differ (* wrong):",
        "  rank 1 row 3, columns 3..10 of 20",
        "    got       -1983.0    0.5* -1981.0 -1980.0 -1979.0 -1978.0 -1977.0 -1976.0",
        "    expected  -1983.0 -1982.0 -1981.0 -1980.0 -1979.0 -1978.0 -1977.0 -1976.0",
        "  rank 1 row 39, columns 0..7 of 20",
        "    got       -0.02205* -0.02205* -0.02205* -0.02205*"
        + " -0.02205* -0.02205* -0.02205* -0.02205*",
        "    expected    -1266.0   -1265.0   -1264.0   -1263.0"
        + "   -1262.0   -1261.0   -1260.0   -1259.0",
    ]


def test_numbers_are_short_and_distinct() -> None:
    values = [0.0, -0.0, 1.5, 1e-7, NAN, -INF, 65504.0, 1 / 3]
    assert shown(np.array(values, np.float16), "float16") == (
        ["0.0", "-0.0", "1.5", "1.0e-07", "nan", "-inf", "65504.0", "0.3333"]
    )
    near = np.array([0x3F80, 0x3F81, 0x3F82, 0xC2F7], np.uint16)
    assert shown(near, "bfloat16") == ["1.0", "1.008", "1.016", "-123.5"]
    assert shown(from_float32(np.array([1e20], np.float32)), "bfloat16") == ["9.973e+19"]
    assert shown(np.array([-128, 7], np.int8), "int8") == ["-128", "7"]
    assert shown(poison((1,), "bool"), "bool") == ["0xa5"]
