"""LinearParallel: groups, blocks, the reference against plain formulas, cases and bounds."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from golden.cases import Case, all_cases, all_outputs, case_bounds, case_layout, expected, inputs
from golden.compare import compare
from golden.data.dtypes import float_format, from_float32, same_bits, storage
from golden.operators.linear_parallel.bounds import linear_parallel_bounds
from golden.operators.linear_parallel.groups import LinearParallel, block_of, place
from golden.operators.linear_parallel.reference import linear_parallel, output_block, widened

from tests.golden.each_of import each_case

CASES = all_cases("linear_parallel")
EXACT = [case for case in CASES if case.kind == "exact"]
RANDOM = [case for case in CASES if case.kind == "random"]


def values(array: np.ndarray, dtype: str) -> np.ndarray:
    return widened(array, dtype).astype(np.float64)


def call_of(case: Case) -> LinearParallel:
    assert case.linear is not None
    return case.linear


def by_hand(case: Case, rank: int) -> np.ndarray:
    """The output in float64, group by group, written as the operator is described."""
    call, tensors = call_of(case), inputs(case)
    ag, rs, size = call.ag_dim, call.rs_dim, call.rank_size
    if call.type != 4:
        ag, rs = {0: (1, size), 1: (1, size), 2: (size, 1), 3: (1, 1)}[call.type]
    total: np.ndarray | float = 0.0
    if call.type == 3:
        gather_of, reduce_group, rs_index = {rank: [rank]}, [rank], 0
    elif call.inner_dim_is_ag:
        reduce_group = [j * ag + rank % ag for j in range(rs)]
        gather_of = {q: [q // ag * ag + j for j in range(ag)] for q in reduce_group}
        rs_index = rank // ag
    else:
        reduce_group = [rank // rs * rs + j for j in range(rs)]
        gather_of = {q: [j * rs + q % rs for j in range(ag)] for q in reduce_group}
        rs_index = rank % rs
    for q in reduce_group:
        rows = np.concatenate(
            [
                values(tensors[a]["x"], case.dtype).reshape(-1, case.x_shapes[0][-1])
                for a in gather_of[q]
            ]
        )
        weight = values(tensors[q]["weight"], case.dtype)
        total = total + rows @ (weight.T if call.trans_weight else weight)
    assert isinstance(total, np.ndarray)
    if call.type in (1, 4):
        if call.scatter_rows:
            ends = np.cumsum([0, *call.scatter_rows[rank]])
            total = total[ends[rs_index] : ends[rs_index + 1]]
        else:
            height = len(total) // rs
            total = total[rs_index * height : (rs_index + 1) * height]
    if call.has_residual:
        total = total + values(tensors[rank]["residual"], case.dtype).reshape(1, -1)
    return total


@each_case(EXACT)
def test_exact_cases_are_exact_in_any_arithmetic(case: Case) -> None:
    for rank, output in enumerate(expected(case)):
        by_float64 = by_hand(case, rank)
        assert np.array_equal(values(output, case.dtype).reshape(by_float64.shape), by_float64)


def test_no_partial_sum_of_an_exact_case_can_be_rounded() -> None:
    for case in EXACT:
        call, tensors = call_of(case), inputs(case)
        largest = 2 ** (float_format(case.dtype).mantissa + 1)
        sizes = []
        for own in tensors:
            x = np.abs(values(own["x"], case.dtype)).reshape(-1, case.x_shapes[0][-1])
            weight = np.abs(values(own["weight"], case.dtype))
            product = x @ (weight.T if call.trans_weight else weight)
            sizes.append(float(product.max(initial=0)))
        for rank in range(case.rank_size):
            own_sum = sum(
                max(sizes[q] for q in place(call, g).gathered) for g in place(call, rank).reduced
            )
            residual = np.abs(
                values(tensors[rank].get("residual", np.zeros(1, storage(case.dtype))), case.dtype)
            ).max()
            assert own_sum + residual <= largest, case.id


@each_case(RANDOM)
def test_random_cases_are_within_the_bound_of_an_exact_sum(case: Case) -> None:
    bounds = case_bounds(case)
    assert bounds is not None
    for rank, (output, bound) in enumerate(zip(expected(case), bounds, strict=True)):
        assert np.isfinite(bound).all() and bound.shape == output.shape
        error = np.abs(values(output, case.dtype).reshape(-1) - by_hand(case, rank).reshape(-1))
        assert (error <= bound.reshape(-1) / 2).all()


def in_another_order(case: Case) -> list[np.ndarray]:
    """The result of an implementation that adds from the last product on, in float32."""
    call, tensors = call_of(case), inputs(case)
    turned = []
    for own in tensors:
        axis = -1 if call.trans_weight else 0
        turned.append((own["x"][..., ::-1].copy(), np.flip(own["weight"], axis).copy()))
    results = []
    for rank in range(case.rank_size):
        total: np.ndarray | None = None
        for q in reversed(place(call, rank).reduced):
            x = np.concatenate(
                [turned[a][0].reshape(-1, case.x_shapes[0][-1]) for a in place(call, q).gathered]
            )
            left, right = widened(x, case.dtype), widened(turned[q][1], case.dtype)
            right = right.T if call.trans_weight else right
            part = np.zeros((len(left), right.shape[1]), np.float32)
            for i in range(left.shape[1]):
                part += left[:, i : i + 1] * right[i]
            total = part if total is None else total + part
        assert total is not None
        first, end, shape = output_block(call, rank, case.x_shapes)
        own_block = total[first:end]
        if call.has_residual:
            residual = widened(tensors[rank]["residual"], case.dtype)
            own_block = own_block + residual.reshape(1, -1)
        narrow = (
            from_float32(own_block)
            if case.dtype == "bfloat16"
            else own_block.astype(storage(case.dtype))
        )
        results.append(narrow.reshape(*shape, -1))
    return results


def test_another_order_of_additions_is_accepted_and_a_wrong_weight_is_not() -> None:
    differing = 0
    for case in RANDOM:
        right, other, bounds = expected(case), in_another_order(case), case_bounds(case)
        result = compare(other, right, case.dtype, bounds=bounds, layout=case_layout(case))
        assert result.accepted, f"{case.id}: {result.text()}"
        differing += result.differing
        wrong = [array[..., ::-1].copy() for array in right]
        assert not compare(wrong, right, case.dtype, bounds=bounds).accepted, case.id
    assert differing > 1000


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


def test_groups_of_the_documented_example() -> None:
    inner = LinearParallel(4, 8, 4, 2)
    assert {place(inner, r).gathered for r in range(8)} == {(0, 1, 2, 3), (4, 5, 6, 7)}
    assert {place(inner, r).reduced for r in range(8)} == {(0, 4), (1, 5), (2, 6), (3, 7)}
    outer = replace(inner, inner_dim_is_ag=False)
    assert {place(outer, r).gathered for r in range(8)} == {(0, 2, 4, 6), (1, 3, 5, 7)}
    assert {place(outer, r).reduced for r in range(8)} == {(0, 1), (2, 3), (4, 5), (6, 7)}


def test_a_wrong_group_or_rank_would_show() -> None:
    for case in [case for case in EXACT if "groups" in case.name and case.rank_size == 4]:
        call, tensors = call_of(case), inputs(case)
        if min(call.ag_dim, call.rs_dim) < 2 or call.gather_rows:
            continue
        xs, weights = ([own[name] for own in tensors] for name in ("x", "weight"))
        turned = replace(call, inner_dim_is_ag=not call.inner_dim_is_ag)
        other = linear_parallel(turned, xs, weights, dtype=case.dtype)
        for got, [want] in zip(expected(case), other, strict=True):
            assert not same_bits(got, want, case.dtype)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_cases_cover_what_they_should(size: int) -> None:
    cases = [case for case in CASES if case.rank_size == size]
    calls = [call_of(case) for case in cases]
    for kind in range(5):
        for dtype in ("float16", "bfloat16", "float32"):
            own = [c for c in cases if call_of(c).type == kind and c.dtype == dtype]
            assert {case.kind for case in own} == {"exact", "random"}
    dims = {(c.ag_dim, c.inner_dim_is_ag) for c in calls if c.type == 4}
    assert dims == {(a, i) for a in range(1, size + 1) if size % a == 0 for i in (True, False)}
    for trait in ("trans_weight", "has_residual", "keep_intermediate"):
        assert {getattr(call, trait) for call in calls} == {True, False}
    assert any(len(case.x_shapes[0]) == 3 for case in cases)
    assert any(len(set(case.x_shapes)) > 1 for case in cases)
    assert any(0 in case.rows for case in cases)
    assert any(sum(case.rows) == 0 for case in cases)
    if size == 4:
        assert any(len(set(call.gather_rows)) > 1 for call in calls)
        assert any(len(set(call.scatter_rows)) > 1 for call in calls)


def test_data_differ_in_every_rank() -> None:
    for case in CASES:
        for a, b in itertools.combinations(inputs(case), 2):
            for name in ("x", "weight"):
                if min(a[name].size, b[name].size) > 20:
                    same = a[name].reshape(-1)[:20] == b[name].reshape(-1)[:20]
                    assert not same.all(), f"{case.id} {name}"


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
    [[right]] = linear_parallel(call, [tiny], [large], dtype="bfloat16")
    assert right.any()
    flushed = np.zeros_like(right)
    bounds = linear_parallel_bounds(call, [tiny], [large], [], "bfloat16")
    assert compare([flushed], [right], "bfloat16", bounds=bounds).accepted
    bounds = linear_parallel_bounds(call, [large[:2]], [large], [], "bfloat16")
    [[right]] = linear_parallel(call, [large[:2]], [large], dtype="bfloat16")
    assert not compare([flushed], [right], "bfloat16", bounds=bounds).accepted
