"""Types 5 and 6, moe_dispatch and moe_combine: where each row goes, and back; what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from golden.operators.linear_parallel.experts import experts, received_rows, segments, sent_rows
from golden.operators.linear_parallel.groups import LinearParallel
from golden.operators.linear_parallel.quantised import Scales
from golden.operators.matmul_all_to_all import all_to_all_matmul, matmul_all_to_all
from golden.operators.moe import moe_combine, moe_dispatch

F32 = np.float32
Array = np.ndarray[Any, Any]
PLACES = [(1, 1, 1), (2, 1, 3), (3, 1, 1), (1, 3, 4), (2, 2, 2), (2, 3, 16)]


def call_of(ep: int, tp: int, local: int, **more: Any) -> LinearParallel:
    sizes = {"ep_size": ep, "tp_size": tp, "local_experts": local}
    return LinearParallel(5, ep * tp, trans_weight=False, **sizes, **more)


def routed(ep: int, tp: int, local: int) -> tuple[LinearParallel, Array, list[Array]]:
    """A call, its matrix, and x in which every row tells its source, expert and place."""
    call, draw = call_of(ep, tp, local), np.random.default_rng(7)
    tokens = draw.integers(0, 4, (ep, ep * local))
    xs = []
    for rank in range(ep * tp):
        of = [(rank, e, i) for e, n in enumerate(tokens[rank // tp]) for i in range(n)]
        xs.append(np.array(of, F32).reshape(-1, 3))
    return call, tokens, xs


def identities(call: LinearParallel) -> list[Array]:
    return [np.stack([np.eye(3, dtype=F32)] * call.local_experts)] * call.rank_size


@pytest.mark.parametrize(("ep", "tp", "local"), PLACES)
def test_rows_come_by_expert_then_source_then_place(ep: int, tp: int, local: int) -> None:
    call, tokens, xs = routed(ep, tp, local)
    for rank, y in enumerate(experts(call, xs, identities(call), tokens)):
        rows = [tuple(map(int, row)) for x in xs for row in x if row[1] // local == rank // tp]
        assert [tuple(map(int, row)) for row in y] == sorted(rows, key=lambda r: (r[1], r[0], r[2]))
        assert received_rows(call, tokens, rank) == len(y)
        assert sum(s.rows for s in segments(call, tokens, rank)) == len(y)


@pytest.mark.parametrize(("ep", "tp", "local"), PLACES)
def test_type_6_is_the_way_back_and_adds_the_tp_ranks(ep: int, tp: int, local: int) -> None:
    call, tokens, xs = routed(ep, tp, local)
    there = experts(call, xs, identities(call), tokens)
    longer = [np.concatenate([y, np.full((2, 3), np.nan, F32)]) for y in there]
    rows = [len(x) + rank for rank, x in enumerate(xs)]
    residuals = [np.full(3, rank, F32) for rank in range(ep * tp)]
    back = experts(
        replace(call, type=6), longer, identities(call), tokens, rows=rows, residuals=residuals
    )
    for rank, (x, y) in enumerate(zip(xs, back, strict=True)):
        assert np.array_equal(y[: len(x)], tp * x + rank)
        assert y.shape == (rows[rank], 3)
        assert not y[len(x) :].any()


def test_scales_are_of_the_expert_and_of_the_sender_s_row() -> None:
    call = call_of(2, 1, 2, quant_type=3, out_dtype="float32")
    tokens = np.array([[1, 0, 2, 1], [0, 1, 1, 1]])
    xs = [np.full((4, 1), 3, np.int8), np.full((3, 1), 5, np.int8)]
    weights = [np.full((2, 1, 1), 1, np.int8)] * 2
    scales = [Scales(np.array([1, 10], F32), token_scale=np.arange(1, 5, dtype=F32))]
    scales += [Scales(np.array([100, 1000], F32), token_scale=np.arange(5, 8, dtype=F32))]
    got = [y.reshape(-1).tolist() for y in experts(call, xs, weights, tokens, scales=scales)]
    assert got == [[3, 250], [600, 900, 3000, 12000, 35000]]


def test_minus_zero_stays_without_other_ranks() -> None:
    call = replace(call_of(1, 1, 1, quant_type=1, out_dtype="float16"), type=6)
    x, weight = [np.zeros((1, 1), np.int8)], [np.ones((1, 1, 1), np.int8)]
    [y] = experts(call, x, weight, np.array([[1]]), scales=[Scales(np.array([-1], F32))])
    assert np.signbit(y).all()


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (5, {"rows": [4, 2]}, "rank 0 has 5 rows, its output 4"),
        (5, {"rows": [5, 1]}, "rank 1 has 2 rows, its output 1"),
        (5, {"tokens": [[1, 1], [4, 2]]}, "rank 1 has 6 rows, its x 5"),
        (6, {"tokens": [[1, 1], [4, 2]]}, "rank 1 has 3 rows, its x 2"),
        (6, {"rows": [2, 4]}, "rank 1 has 5 rows, its output 4"),
        (5, {"tokens": [[1, 1], [4, -1]]}, "tokens must be >= 0, got -1"),
        (5, {"tokens": [[1, 1, 0], [4, 1, 0]]}, r"tokens are \[2, 3\], expected \[2, 2\]"),
        (5, {"weights": [np.ones((1, 4, 1), F32)] * 2}, "weight of rank 0"),
    ],
)
def test_rows_that_do_not_fit_are_never_dropped(
    kind: int, change: dict[str, Any], message: str
) -> None:
    call = replace(call_of(2, 1, 1), type=kind)
    tokens = np.array(change.pop("tokens", [[1, 1], [4, 1]]))
    heights = [2, 5] if kind == 5 else [5, 2]
    xs = [np.ones((n, 3), F32) for n in heights]
    weights = change.pop("weights", [np.ones((1, 3, 2), F32)] * 2)
    with pytest.raises(ValueError, match=message):
        experts(call, xs, weights, tokens, **change)


def test_the_groups_must_be_all_ranks() -> None:
    with pytest.raises(ValueError, match=r"epSize 2 \* tpSize 2 must be rankSize 2"):
        segments(replace(call_of(2, 1, 1), tp_size=2), np.array([[1, 1]] * 2), 0)
    assert sent_rows(call_of(1, 2, 2), np.array([[3, 4]]), 1) == 7


@pytest.mark.parametrize("quantize", [None, "int8"])
def test_what_is_dispatched_comes_back(quantize: str | None) -> None:
    draw = np.random.default_rng(3)
    xs = [draw.uniform(-1, 1, (n, 8)).astype(F32) for n in (5, 0, 7)]
    ids = [draw.integers(-1, 6, (len(x), 3)) for x in xs]
    weights = [draw.uniform(-1, 1, own.shape).astype(F32) for own in ids]
    sent = moe_dispatch(xs, ids, 6, quantize=quantize)
    for rank, one in enumerate(sent):
        assert one.counts.sum() == len(one.rows)
        assert [one.send_counts[q].tolist() for q in range(3)] == [
            sent[q].recv_counts[rank].tolist() for q in range(3)
        ]
    rows = [
        one.rows if one.scales is None else one.rows * one.scales[:, None].astype(F32)
        for one in sent
    ]
    for x, own, weight, y in zip(xs, ids, weights, moe_combine(rows, ids, 6, weights), strict=True):
        wanted = np.where(own < 0, 0, weight).sum(axis=1)[:, None] * x
        assert np.abs(y - wanted).max(initial=0) <= (1e-6 if quantize is None else 0.02)


def test_combine_rounds_each_product_and_sum_and_passes_over_no_expert() -> None:
    third, tiny = F32(1) / F32(3), F32(2**-24)
    ids = [np.array([[1, -1, 0, 2]])]
    rows = [np.array([[1], [third], [tiny]], F32)]  # of experts 0, 1 and 2
    weights = [np.array([[third, np.nan, 1, 1]], F32)]
    [y] = moe_combine(rows, ids, 3, weights)
    assert y[0, 0] == F32(F32(F32(third * third) + F32(1)) + tiny)
    [plain] = moe_combine(rows, ids, 3)
    assert plain[0, 0] == F32(F32(third + F32(1)) + tiny)


@pytest.mark.parametrize(
    ("ids", "experts_", "message"),
    [
        (np.array([[2]]), 2, r"an id of rank 0 is not in \[-1, 2\)"),
        (np.array([[-2]]), 2, "an id of rank 0"),
        (np.array([0]), 2, "topk_ids of rank 0"),
    ],
)
def test_wrong_ids_are_refused(ids: Array, experts_: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        moe_dispatch([np.ones((1, 2))], [ids], experts_)
    with pytest.raises(ValueError, match="3 experts do not divide among 2 ranks"):
        moe_dispatch([np.ones((1, 2))] * 2, [ids] * 2, 3)


def test_products_with_an_exchange_are_those_of_the_exchanged_tensors() -> None:
    draw = np.random.default_rng(5)
    xs = [draw.integers(-9, 9, (6, 4)).astype(F32) for _ in range(3)]
    weights = [draw.integers(-9, 9, (12, 5)).astype(F32) for _ in range(3)]
    residuals = [np.full((1, 5), r, F32) for r in range(3)]
    for r, (y, joined) in enumerate(all_to_all_matmul(xs, weights, residuals)):
        for q in range(3):
            assert np.array_equal(joined[:, 4 * q : 4 * q + 4], xs[q][2 * r : 2 * r + 2])
        assert np.array_equal(y, joined @ weights[r] + r)
    narrow = [weight[:4, :3].T for weight in weights]
    got = matmul_all_to_all(xs, narrow, [np.full(1, r, F32) for r in range(3)], trans_weight=True)
    for r, y in enumerate(got):
        parts = [xs[q] @ narrow[q].T[:, r : r + 1] for q in range(3)]
        assert np.array_equal(y, np.concatenate(parts) + r)
    with pytest.raises(ValueError, match=r"of one shape that 3 divides"):
        all_to_all_matmul([x[:4] for x in xs], weights)
    with pytest.raises(ValueError, match=r"n are \[5, 5, 5\], of one number that 3 divides"):
        matmul_all_to_all(xs, [weight[:4] for weight in weights])
