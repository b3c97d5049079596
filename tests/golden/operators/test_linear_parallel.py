"""LinearParallel: groups, blocks, outputs, refusals and bounds."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from golden.cases import Case, all_cases, all_outputs, expected, inputs
from golden.compare import compare
from golden.data.dtypes import from_float32
from golden.operators.linear_parallel.bounds import linear_parallel_bounds
from golden.operators.linear_parallel.groups import LinearParallel, block_of, place
from golden.operators.linear_parallel.reference import linear_parallel


def call_of(case: Case) -> LinearParallel:
    assert case.linear is not None
    return case.linear


@pytest.mark.parametrize("size", range(1, 9))
def test_groups_are_partitions(size: int) -> None:
    for ag in [a for a in range(1, size + 1) if size % a == 0]:
        for inner in (True, False):
            call = LinearParallel(4, size, ag, size // ag, inner)
            places = [place(call, rank) for rank in range(size)]
            indices = {(p.ag_index, p.rs_index) for p in places}
            assert indices == set(itertools.product(range(ag), range(size // ag)))
            for rank, own in enumerate(places):
                assert own.gathered[own.ag_index] == own.reduced[own.rs_index] == rank
                assert all(places[q].gathered == own.gathered for q in own.gathered)
                assert all(places[q].reduced == own.reduced for q in own.reduced)


def test_the_gathered_x_is_the_second_output() -> None:
    [case] = all_cases("linear_parallel", text="p3.exact-batches-all_gather")
    xs = [own["x"] for own in inputs(case)]
    for output, gathered in all_outputs(case):
        assert output.shape == (9, 3, 9)
        assert np.array_equal(gathered, np.concatenate(xs))


def test_one_batch_scatters_its_rows() -> None:
    [case] = all_cases("linear_parallel", text="p2.exact-one_batch")
    assert [output.shape for output in expected(case)] == [(1, 2, 9)] * 2


@pytest.mark.parametrize(
    ("call", "rows", "message"),
    [
        (LinearParallel(1, 3), 7, "7 rows do not divide among 3 ranks"),
        (LinearParallel(1, 2, scatter_rows=((1, 2),) * 2), 4, r"scatterRows \[1, 2\] of rank 0"),
        (LinearParallel(1, 2, scatter_rows=((-1, 5),) * 2), 4, "2 numbers whose sum is 4"),
        (LinearParallel(4, 4, 2, 3), 4, r"agDim 2 \* rsDim 3 must be rankSize 4"),
        (LinearParallel(5, 2), 4, "type 5 has no reference"),
    ],
)
def test_wrong_rows_and_groups(call: LinearParallel, rows: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        block_of(call, 0, rows)


def test_tensors_that_do_not_fit() -> None:
    x, weight = np.ones((2, 3), np.float16), np.ones((4, 3), np.float16)
    call = LinearParallel(0, 2)
    for bad in ([weight.T, weight.T], [weight, weight[:3]]):
        with pytest.raises(ValueError, match="weight of rank"):
            linear_parallel(call, [x, x], bad)
    with pytest.raises(ValueError, match="x of rank 1"):
        linear_parallel(call, [x, x.T], [weight, weight])
    with pytest.raises(ValueError, match="residual of rank 0"):
        linear_parallel(call, [x, x], [weight, weight], [x[0], x[0]])
    lists = replace(LinearParallel(2, 2), gather_rows=((1, 3),) * 2)
    with pytest.raises(ValueError, match="gatherRows"):
        linear_parallel(lists, [x, x], [weight, weight])


def test_large_products_are_the_same_within_the_bound() -> None:
    [case] = all_cases("linear_parallel", text="p2.random-long-pure")
    tensors = inputs(case)
    x, weight = tensors[0]["x"], tensors[0]["weight"]
    many = np.repeat(x, 1000, axis=0)
    call = replace(call_of(case), rank_size=1, has_residual=False)
    [[small]] = linear_parallel(call, [x], [weight])
    [[large]] = linear_parallel(call, [many], [weight])
    assert many.shape[0] * weight.size >= 2**26
    assert np.abs(large[::1000].astype(float) - small.astype(float)).max() <= 2.0**-6


def test_subnormals_taken_as_zero_are_within_the_bound() -> None:
    # bfloat16 instructions take subnormal numbers as 0; a sum of large terms does not notice.
    tiny = from_float32(np.full((2, 40), 2.0**-127, np.float32))
    large = from_float32(np.full((3, 40), 8.0, np.float32))
    call = LinearParallel(3, 1)
    [[right]] = linear_parallel(call, [tiny], [large])
    assert right.any()
    flushed = np.zeros_like(right)
    bounds = linear_parallel_bounds(call, [tiny], [large], [], "bfloat16")
    assert compare([flushed], [right], "bfloat16", bounds=bounds).accepted
    bounds = linear_parallel_bounds(call, [large[:2]], [large], [], "bfloat16")
    [[right]] = linear_parallel(call, [large[:2]], [large])
    assert not compare([flushed], [right], "bfloat16", bounds=bounds).accepted
