"""LinearParallel with leaves: bits, columns of the ranks, quantised leaves, refusals, and cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from golden.case_files.case_fields import case_of, fields_of
from golden.cases import OPERATORS, Case, case_bounds, struct_fields
from golden.data.dtypes import Array, rounded, widened
from golden.data.leaves import cut_evenly
from golden.operators.linear_parallel.cases import DTYPES, leaves_cases
from golden.operators.linear_parallel.entry import linear_call
from golden.operators.linear_parallel.experts import experts
from golden.operators.linear_parallel.groups import (
    ALL_GATHER,
    ALL_GATHER_REDUCE_SCATTER,
    ALL_REDUCE,
    PURE,
    REDUCE_SCATTER,
    LinearParallel,
)
from golden.operators.linear_parallel.quantised import (
    PER_CHANNEL,
    PER_GROUP,
    PER_TENSOR,
    PER_TOKEN,
    Scales,
)
from golden.operators.linear_parallel.reference import linear_parallel

from tests.golden.data.test_leaves import once_rounded

F32 = np.float32


def _outputs(call: LinearParallel, x: Array, weight: Array, cut: Sequence[int]) -> Array:
    """The whole product, whose k is cut at these columns."""
    xs = [x[:, a:b] for a, b in pairwise(cut)]
    weights = [weight[a:b] for a, b in pairwise(cut)]
    outputs = [output for [output] in linear_parallel(call, xs, weights)]
    scatters = call.type in (REDUCE_SCATTER, ALL_GATHER_REDUCE_SCATTER)
    return np.concatenate(outputs) if scatters else outputs[-1]


@pytest.mark.parametrize("kind", [ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER_REDUCE_SCATTER])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_same_bits_at_every_number_of_ranks(kind: int, dtype: type) -> None:
    rng, k, leaves = np.random.default_rng(kind), 37, 13
    x = rng.standard_normal((24, k)).astype(dtype)
    weight = rng.standard_normal((k, 5)).astype(dtype)
    alone = LinearParallel(PURE, 1, trans_weight=False, sum_leaves=leaves)
    [[whole]] = linear_parallel(alone, [x], [weight])
    borders = [0, *np.cumsum([3] * 11 + [2] * 2).tolist()]
    assert borders == cut_evenly(k, leaves)
    for held in [
        *(cut_evenly(leaves, ranks) for ranks in (2, 3, 4, 6, 8)),
        [0, 1, 12, 13],
        [0, 1, 7, 11, 13],
    ]:
        cut, ranks = [borders[leaf] for leaf in held], len(held) - 1
        call = LinearParallel(*(kind, ranks, 1, ranks, True, False), sum_leaves=leaves)
        np.testing.assert_array_equal(_outputs(call, x, weight, cut), whole)
        lists = (tuple(b - a for a, b in pairwise(cut)),) * ranks
        call = replace(call, sum_columns=lists)
        np.testing.assert_array_equal(_outputs(call, x, weight, cut), whole)
    gathers = LinearParallel(ALL_GATHER, 2, trans_weight=False, sum_leaves=leaves)
    outputs = linear_parallel(gathers, [x[:9], x[9:]], [weight, weight])
    np.testing.assert_array_equal(outputs[1][0], whole)


@pytest.mark.parametrize(
    ("columns", "leaves", "lists", "message"),
    [
        ((3, 3), 7, (), r"sumLeaves 7 must be from 1 to 6, the columns of all ranks"),
        ((3, 3), -1, (), r"sumLeaves -1 must be from 1 to 6"),
        ((4000, 4000), 4097, (), r"sumLeaves 4097 must be from 1 to 4096"),
        (
            (3, 3),
            3,
            (),
            "rank 1 begins at column 3, inside of leaf 1, which has the columns 2 to 4",
        ),
        (
            (4, 3, 3),
            5,
            (),
            "rank 2 begins at column 7, inside of leaf 3, which has the columns 6 to 8",
        ),
        ((3, 0, 2), 2, (), "rank 1 has no columns, so it has no leaf"),
        ((4, 2), 3, ((4, 2), (2, 4)), r"sumColumns \[2, 4\] of rank 1 are \[4, 2\]"),
        ((4, 2), 3, ((4, 2), (4, 1, 1)), r"sumColumns \[4, 1, 1\] of rank 1 are \[4, 2\]"),
    ],
)
def test_columns_that_do_not_fit_the_leaves(
    columns: Sequence[int], leaves: int, lists: tuple[tuple[int, ...], ...], message: str
) -> None:
    call = LinearParallel(
        ALL_REDUCE, len(columns), trans_weight=False, sum_leaves=leaves, sum_columns=lists
    )
    xs = [np.ones((1, k), F32) for k in columns]
    weights = [np.ones((k, 1), F32) for k in columns]
    with pytest.raises(ValueError, match=message):
        linear_parallel(call, xs, weights)


def test_leaves_have_rules_of_their_own() -> None:
    x, weight = np.ones((1, 3), F32), np.ones((3, 1), F32)
    lists = LinearParallel(ALL_REDUCE, 2, trans_weight=False, sum_columns=((3, 3),) * 2)
    with pytest.raises(ValueError, match="sumColumns without sumLeaves"):
        linear_parallel(lists, [x, x], [weight, weight])
    gathers = LinearParallel(ALL_GATHER, 2, trans_weight=False, sum_leaves=1)
    with pytest.raises(ValueError, match=r"x of rank 1 is \[1, 2\], that of rank 0 has 3 columns"):
        linear_parallel(gathers, [x, x[:, 1:]], [weight, weight[1:]])
    for kind in (5, 6):
        call = LinearParallel(kind, 1, trans_weight=False, sum_leaves=1)
        with pytest.raises(ValueError, match=f"type {kind} has no sumLeaves"):
            experts(call, [x], [weight[None]], np.array([[1]]))


# Scalar models, written from the definition: a product of leaves is a sum of exact fractions, each
# step rounded to float32.


def _scalar_leaf(left: Sequence[float], right: Sequence[float]) -> float:
    total = 0.0
    for a, b in zip(left, right, strict=True):
        total = once_rounded(Fraction(float(a)) * Fraction(float(b)) + Fraction(total))
    return total


def _scalar_tree(leaves: Sequence[float]) -> float:
    if len(leaves) == 1:
        return leaves[0]
    left = max(2**i for i in range(20) if 2**i < len(leaves))
    return float(F32(_scalar_tree(leaves[:left])) + F32(_scalar_tree(leaves[left:])))


def _each(rows: int, columns: int, element: Callable[[int, int], float]) -> Array:
    return np.array([[element(i, j) for j in range(columns)] for i in range(rows)], F32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("cut", "leaves"), [([0, 12, 23], 4), ([0, 5, 19, 23], 5), ([0, 23], 23)])
def test_random_products_have_the_bits_of_a_scalar_model(
    dtype: str, cut: list[int], leaves: int
) -> None:
    rng, n = np.random.default_rng(leaves), 3
    draw = lambda *shape: rounded(rng.standard_normal(shape).astype(F32), dtype)  # noqa: E731
    x, weight, residual = draw(2, 23), draw(23, n), draw(n)
    ranks = len(cut) - 1
    call = LinearParallel(
        ALL_REDUCE, ranks, trans_weight=False, has_residual=True, sum_leaves=leaves
    )
    xs, weights = ([side(a, b) for a, b in pairwise(cut)] for side in (
        lambda a, b: x[:, a:b], lambda a, b: weight[a:b]))  # fmt: skip
    outputs = linear_parallel(call, xs, weights, [residual] * ranks)
    wide, right, more = (widened(one, dtype) for one in (x, weight, residual))
    borders = cut_evenly(23, leaves)

    def element(i: int, j: int) -> float:
        parts = [_scalar_leaf(wide[i, a:b], right[a:b, j]) for a, b in pairwise(borders)]
        return float(F32(_scalar_tree(parts)) + more[j])

    wanted = rounded(_each(2, n, element), dtype)
    for [output] in outputs:
        np.testing.assert_array_equal(output, wanted)


@pytest.mark.parametrize("mode", [PER_TENSOR, PER_CHANNEL, PER_TOKEN])
def test_leaves_of_int8_are_dequantised_one_by_one(mode: int) -> None:
    rng, borders, cut, n = np.random.default_rng(mode), [0, 6, 12, 17, 22, 27], [0, 12, 27], 3
    x = rng.integers(-128, 128, (4, 27), np.int8)
    weight = rng.integers(-128, 128, (27, n), np.int8)
    width = 1 if mode == PER_TENSOR else n
    own = [
        Scales(
            rng.uniform(-1, 1, width).astype(F32),
            rng.integers(-(2**31), 2**31, width).astype(np.int32),
            rng.uniform(-1, 1, 4).astype(F32) if mode == PER_TOKEN else None,
        )
        for _ in range(2)
    ]
    call = LinearParallel(
        *(ALL_REDUCE, 2),
        trans_weight=False,
        quant_type=mode,
        out_dtype="float32",
        sum_leaves=5,
        sum_columns=((12, 15),) * 2,
    )
    xs, weights = [x[:, :12], x[:, 12:]], [weight[:12], weight[12:]]
    [[output], _] = linear_parallel(call, xs, weights, scales=own)

    def part(i: int, j: int, a: int, b: int) -> float:
        rank = int(a >= cut[1])
        column, scales = min(j, width - 1), own[rank]
        assert scales.bias is not None
        total = sum(int(p) * int(q) for p, q in zip(x[i, a:b], weight[a:b, j], strict=True))
        total += int(scales.bias[column]) if a in cut else 0
        total = (total + 2**31) % 2**32 - 2**31
        value = F32(total) * scales.scale[column]
        return float(value if scales.token_scale is None else value * scales.token_scale[i])

    def element(i: int, j: int) -> float:
        return _scalar_tree([part(i, j, a, b) for a, b in pairwise(borders)])

    np.testing.assert_array_equal(output, _each(4, n, element))


@pytest.mark.parametrize("mode", [PER_TENSOR, PER_CHANNEL, PER_GROUP, PER_TOKEN])
def test_leaves_of_an_int8_weight_are_those_of_the_widened_weight(mode: int) -> None:
    rng, borders, cut, n = np.random.default_rng(mode), [0, 6, 12, 17, 22, 27], [0, 12, 27], 3
    x = rng.uniform(-1, 1, (2, 27)).astype(np.float16)
    weight = rng.integers(-128, 128, (27, n), np.int8)
    group = 5  # of each rank's rows of the weight: its groups are cut by leaves
    width = 1 if mode == PER_TENSOR else n
    own = []
    for rank in (0, 1):
        lines = -(-(cut[rank + 1] - cut[rank]) // group) if mode == PER_GROUP else 1
        scale, offset = (rng.uniform(-2, 2, (lines, width)).astype(np.float16) for _ in "so")
        token = rng.uniform(-1, 1, 2).astype(F32) if mode == PER_TOKEN else None
        own.append(Scales(scale, offset, token))
    call = LinearParallel(
        *(REDUCE_SCATTER, 2),
        trans_weight=False,
        quant_type=mode,
        quant_group_size=group if mode == PER_GROUP else 0,
        sum_leaves=5,
    )
    xs, weights = [x[:, :12], x[:, 12:]], [weight[:12], weight[12:]]
    outputs = linear_parallel(call, xs, weights, scales=own)

    def factor(row: int, j: int) -> np.float16:
        rank = int(row >= cut[1])
        line = (row - cut[rank]) // group if mode == PER_GROUP else 0
        column, scales = min(j, width - 1), own[rank]
        assert scales.bias is not None
        shifted = F32(weight[row, j]) + F32(scales.bias[line, column])
        return np.float16(shifted * F32(scales.scale[line, column]))

    def part(i: int, j: int, a: int, b: int) -> float:
        value = F32(_scalar_leaf(x[i, a:b], [factor(row, j) for row in range(a, b)]))
        token = own[int(a >= cut[1])].token_scale
        return float(value if token is None else value * token[i])

    def element(i: int, j: int) -> float:
        return _scalar_tree([part(i, j, a, b) for a, b in pairwise(borders)])

    wanted = _each(2, n, element).astype(np.float16)
    np.testing.assert_array_equal(np.concatenate([output for [output] in outputs]), wanted)


CASES = [case for size in (1, 2, 3, 4) for case in leaves_cases(size)]


def _call(case: Case) -> LinearParallel:
    assert case.linear is not None
    return case.linear


def test_the_cases_have_every_type_dtype_cut_and_number_of_ranks() -> None:
    assert len({case.id for case in CASES}) == len(CASES)
    seen = {(c.rank_size, _call(c).type, c.dtype) for c in CASES if not _call(c).is_quantised}
    assert seen == {(p, kind, d) for p in (1, 2, 3, 4) for kind in range(5) for d in DTYPES}
    for quantised in ("int8", "float16", "bfloat16"):
        kinds = {_call(c).type for c in CASES if _call(c).is_quantised and c.dtype == quantised}
        assert kinds == set(range(5))
    for case in CASES:
        call = _call(case)
        assert call.sum_leaves > 0
        assert case_bounds(case) is None, case.id
        assert case_of(fields_of(case)) == case
        params = {"rankSize": case.rank_size, **OPERATORS["linear_parallel"].params(case)}
        assert replace(linear_call(params, case.rank_size), has_bias=call.has_bias) == call
    lists = [case for case in CASES if _call(case).sum_columns]
    for kind in (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER_REDUCE_SCATTER):
        assert any(len(set(_call(c).sum_columns[0])) > 1 for c in lists if _call(c).type == kind)
    [*_, last] = lists
    columns = _call(last).sum_columns[0]
    assert struct_fields(last, 0)["sumColumns"] == list(columns)
    assert struct_fields(last, 0)["sumLeaves"] == _call(last).sum_leaves
