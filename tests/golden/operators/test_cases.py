"""The V operators' cases: complete along every axis, consistent, and legal by the contract."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise

import numpy as np
import pytest
from golden.case_files.case_fields import case_of, fields_of
from golden.cases import (
    ATB_REDUCE_OPS,
    REDUCE_OPS,
    Case,
    all_cases,
    expected,
    inputs,
)
from golden.data.dtypes import DTYPES, FLOAT_DTYPES, REDUCE_DTYPES, same_bits, storage
from golden.data.reduction import has_reduction
from golden.data.shares import SHARES, packed
from golden.operators.reduce_scatter_v import reduce_scatter_v

from tests.golden.each_of import each_case

GATHER = all_cases("all_gather_v")
SCATTER = all_cases("reduce_scatter_v")
CASES = GATHER + SCATTER
EACH_CASE = each_case(CASES)


def of_v_operators(rank_sizes: tuple[int, ...]) -> list[Case]:
    return [
        case
        for name in ("all_gather_v", "reduce_scatter_v")
        for case in all_cases(name, rank_sizes=rank_sizes)
    ]


def of_size(cases: list[Case], size: int) -> list[Case]:
    return [case for case in cases if case.rank_size == size]


def test_ids_are_unique_and_fit_for_files() -> None:
    ids = [case.id for case in all_cases()]
    assert len(set(ids)) == len(ids)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.") for name in ids)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_axis_is_covered(size: int) -> None:
    gather, scatter = of_size(GATHER, size), of_size(SCATTER, size)
    assert {f"dtype-{dtype}" for dtype in DTYPES} <= {case.name for case in gather}
    assert {case.dtype for case in gather} == set(DTYPES)
    pairs = {(case.dtype, case.op) for case in scatter}
    assert pairs == {(d, op) for d in REDUCE_DTYPES for op in REDUCE_OPS if has_reduction(op, d)}
    for cases in (gather, scatter):
        names = {case.name for case in cases}
        assert {f"shares-{name.replace(':', '-')}" for name in SHARES} <= names
    assert {case.kind for case in scatter} == {"index", "exact", "random", "cancel", "special"}
    assert {len(case.x_shapes[0]) for case in gather} >= {1, 2, 3, 4, 8}


def cuts_rows(case: Case) -> bool:
    width = int(np.prod(case.x_shapes[0][1:]))
    return any(n % width for n in case.counts)


def has_tail(case: Case) -> bool:
    width = int(np.prod(case.x_shapes[0][1:]))
    ends = (
        [max(d + c for d, c in zip(case.displs, case.counts, strict=True))] * case.rank_size
        if case.operator == "all_gather_v"
        else case.counts
    )
    return any(rows * width >= end + width for rows, end in zip(case.rows, ends, strict=True))


def has_gaps(case: Case) -> bool:
    places = sorted((d, d + c) for d, c in zip(case.displs, case.counts, strict=True) if c)
    return any(end < start for (_, end), (start, _) in pairwise(places))


def overlaps(case: Case) -> bool:
    places = sorted((d, d + c) for d, c in zip(case.displs, case.counts, strict=True) if c)
    return any(end > start for (_, end), (start, _) in pairwise(places))


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("operator", ["all_gather_v", "reduce_scatter_v"])
def test_every_layout_is_there(operator: str, size: int) -> None:
    cases = of_size([case for case in CASES if case.operator == operator], size)
    for trait in (cuts_rows, has_tail, has_gaps):
        assert any(trait(case) for case in cases), trait.__name__
    assert any(list(case.displs) != packed(case.counts) for case in cases)
    assert any(case.displs[0] > case.displs[1] for case in cases)
    assert any(case.counts[0] == 0 for case in cases)
    assert any(max(case.counts) > 100_000 for case in cases)
    assert any(overlaps(case) for case in cases) == (operator == "reduce_scatter_v")


def test_zero_rows_and_differing_shapes_are_there() -> None:
    assert any(case.x_shapes[0][0] == 0 for case in GATHER)
    assert any(len(set(case.rows)) > 1 for case in GATHER)
    assert any(len({shape[1:] for shape in case.x_shapes}) > 1 for case in GATHER)
    assert any(0 in case.rows for case in SCATTER)


@EACH_CASE
def test_inputs_and_outputs_fit_the_contract(case: Case) -> None:
    tensors, outputs = inputs(case), expected(case)
    assert len(tensors) == len(outputs) == case.rank_size
    for rank, (own, output) in enumerate(zip(tensors, outputs, strict=True)):
        x, y = own["x"], own["y"]
        assert x.dtype == output.dtype == storage(case.dtype)
        assert y.dtype == np.float16
        assert output.shape == (*y.shape, *x.shape[1:])
        assert all(dim > 0 for dim in output.shape[1:])
        hosts = [t for name, t in own.items() if name not in ("x", "y")]
        assert [t.dtype for t in hosts] == [np.int64] * 3
        if case.operator == "all_gather_v":
            assert list(own) == ["x", "sendCount", "recvCounts", "rdispls", "y"]
            assert own["sendCount"].tolist() == [own["recvCounts"][rank]]
            assert sum(case.counts) > 0
            assert case.counts[rank] <= x.size
            assert 1 <= x.ndim <= 8
        else:
            assert list(own) == ["x", "sendCounts", "sdispls", "recvCount", "y"]
            assert own["recvCount"].tolist() == [own["sendCounts"][rank]]
            assert x.ndim == 2 and x.shape == tensors[0]["x"].shape


@EACH_CASE
def test_a_wrong_rank_or_position_would_show(case: Case) -> None:
    xs = [own["x"] for own in inputs(case)]
    outputs = expected(case)
    if case.operator == "all_gather_v":
        written = np.zeros(outputs[0].size, np.bool_)
        for x, n, d in zip(xs, case.counts, case.displs, strict=True):
            part = outputs[0].reshape(-1)[d : d + n]
            assert part.tobytes() == x.reshape(-1)[:n].tobytes()
            written[d : d + n] = True
        assert not outputs[0].reshape(-1)[~written].any()
    else:
        big = [y for y, n in zip(outputs, case.counts, strict=True) if n > 20]
        for a, b in pairwise(big):
            assert a.tobytes()[:40] != b.tobytes()[:40] or "same-slice" in case.name


def test_the_order_of_a_sum_shows() -> None:
    cases = [case for case in SCATTER if case.name.startswith("data-cancel-")]
    assert {case.dtype for case in cases} == set(FLOAT_DTYPES)
    for case in cases:
        if case.rank_size == 2:
            continue
        xs = [own["x"] for own in inputs(case)][::-1]
        other = reduce_scatter_v(xs, case.counts, case.displs, case.rows, case.op, case.dtype)
        pairs = zip(expected(case), other, strict=True)
        assert not all(same_bits(a, b, case.dtype) for a, b in pairs), case.id


@pytest.mark.parametrize("size", [1, 7])
def test_other_numbers_of_ranks(size: int) -> None:
    for case in of_v_operators((size,)):
        assert len(expected(case)) == size


def test_the_seed_changes_the_data_and_nothing_else() -> None:
    for plain, other in zip(all_cases(text="v.p2."), all_cases(text="v.p2.", seed=9), strict=True):
        assert dataclasses.replace(other, seed=0) == plain
        x, again = inputs(plain)[1]["x"], inputs(other)[1]["x"]
        assert x.tobytes() != again.tobytes() or max(plain.counts) <= 2 or not x.size


def test_ops_of_atb_have_every_dtype() -> None:
    strict = [case for case in SCATTER if case.op in ATB_REDUCE_OPS]
    assert {case.op for case in strict} == set(ATB_REDUCE_OPS)
    assert {case.dtype for case in strict} == set(REDUCE_DTYPES)


def test_cases_survive_json() -> None:
    for case in all_cases():
        assert case_of(json.loads(json.dumps(fields_of(case)))) == case


def test_a_case_needs_its_fields() -> None:
    fields = fields_of(CASES[0])
    with pytest.raises(TypeError, match="wings"):
        case_of({**fields, "wings": 2})
    del fields["counts"]
    with pytest.raises(TypeError, match="counts"):
        case_of(fields)


def test_an_unknown_operator() -> None:
    with pytest.raises(ValueError, match=r"operator 'all_to_none' is unknown; use one of all_gath"):
        all_cases("all_to_none")
    with pytest.raises(ValueError, match=r"operator 'all_to_none' is unknown; use one of all_gath"):
        inputs(dataclasses.replace(CASES[0], operator="all_to_none"))
