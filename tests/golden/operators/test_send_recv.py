"""Messages of one rank to another, and the plain level's collectives with a root."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from golden.cases import (
    Case,
    all_cases,
    case_layout,
    expected,
    inputs,
    struct_fields,
    struct_operator,
)
from golden.data import fill
from golden.data.dtypes import DTYPES
from golden.operators.all_reduce import all_reduce
from golden.operators.rooted_collectives import gatherv, reduce, scatterv
from golden.operators.send_recv import send_recv

from tests.golden.each_of import each_case

SENT, RECEIVED = (all_cases(name, rank_sizes=(2, 3, 4, 7)) for name in ("send", "recv"))
EACH_CASE = each_case(SENT + RECEIVED)


@EACH_CASE
def test_the_receiver_gets_what_the_sender_has_and_nobody_else_changes(case: Case) -> None:
    tensors, outputs = [own["x"] for own in inputs(case)], expected(case)
    assert [list(own) for own in inputs(case)] == [["x"]] * case.rank_size
    assert case.root != case.peer
    for rank, (x, output) in enumerate(zip(tensors, outputs, strict=True)):
        source = case.root if rank == case.peer else rank
        assert output.tobytes() == tensors[source].tobytes()
        assert output.shape == x.shape == case.x_shapes[rank]
    if tensors[0].nbytes > 8 and case.dtype != "bool":
        assert len({x.tobytes() for x in tensors}) == case.rank_size
    layout = case_layout(case)
    assert [block.rank for block in layout.of(case.peer)] == [case.root]
    assert [layout.of(r)[0].count for r in range(case.rank_size)] == [y.size for y in outputs]


@EACH_CASE
def test_sender_and_receiver_alone_have_an_operator(case: Case) -> None:
    operators = [struct_operator(case, rank) for rank in range(case.rank_size)]
    assert (operators[case.root], operators[case.peer]) == ("send", "recv")
    assert operators.count("") == case.rank_size - 2
    assert struct_fields(case, case.root) == {"destRank": case.peer}
    assert struct_fields(case, case.peer) == {"srcRank": case.root}


@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_every_axis_is_covered(size: int) -> None:
    sent = [case for case in SENT if case.rank_size == size]
    received = [case for case in RECEIVED if case.rank_size == size]
    assert {(case.root, case.peer) for case in sent} == set(permutations(range(size), 2))
    assert {case.dtype for case in sent} == {case.dtype for case in received} == set(DTYPES)
    assert {0, 1, 8191, 131_101} <= {int(np.prod(case.x_shapes[0])) for case in sent}
    assert {len(case.x_shapes[case.peer]) for case in received} == set(range(1, 9))
    other = [case for case in received if len(set(case.x_shapes)) > 1]
    assert {len(case.x_shapes[case.peer]) for case in other} >= set(range(2, 9))


def test_wrong_arguments_are_refused() -> None:
    xs = [np.zeros(4), np.zeros((2, 2)), np.zeros(3), np.zeros(4, np.int8)]
    for pair, message in (
        ((0, 4), r"destination must be in \[0, 4\), got 4"),
        ((-1, 0), r"source must be in \[0, 4\), got -1"),
        ((1, 1), "rank 1 cannot send to itself"),
        ((0, 2), "rank 0 sends 4 elements of float64, rank 2 receives 3 of float64"),
        ((0, 3), "rank 0 sends 4 elements of float64, rank 3 receives 4 of int8"),
    ):
        with pytest.raises(ValueError, match=message):
            send_recv(xs, *pair)


def test_the_receiver_has_a_copy() -> None:
    xs = [np.zeros(4), np.ones((2, 2))]
    got = send_recv(xs, 0, 1)
    assert got[1].tolist() == [[0, 0], [0, 0]]
    assert not any(np.shares_memory(y, x) for y in got for x in xs)


@pytest.mark.parametrize("text", ["p2.", "p3.sum-", "p4.data-cancel"])
def test_reduce_equals_all_reduce_on_the_root(text: str) -> None:
    cases = all_cases("all_reduce", text=text)
    assert cases
    for case in cases:
        xs = [own["x"] for own in inputs(case)]
        want = all_reduce(xs, case.op, case.dtype)
        assert reduce(xs, case.op, case.dtype).tobytes() == want.tobytes()


@pytest.mark.parametrize("sizes", [[3], [0, 2], [5, 0, 1, 7], [0, 0, 0], [131_101, 1]])
def test_a_scatterv_and_a_gatherv_are_each_other_s_end(sizes: list[int]) -> None:
    x = fill((sum(sizes), 2), "bfloat16", 1)
    parts = scatterv(x, sizes)
    assert [part.shape for part in parts] == [(n, 2) for n in sizes]
    assert gatherv(parts).tobytes() == x.tobytes()
    start = sum(sizes[:-1])
    assert parts[-1].tobytes() == x[start:].tobytes()


def test_refusals_of_collectives_with_a_root() -> None:
    with pytest.raises(ValueError, match=r"reduce: xs\[1\] is \(3,\)"):
        reduce([np.zeros(2), np.zeros(3)])
    with pytest.raises(ValueError, match="op 'mean' is unknown"):
        reduce([np.zeros(2, np.int8)] * 2, "mean")
    for other in (np.zeros((2, 4)), np.zeros((2, 3), np.int8)):
        with pytest.raises(ValueError, match=r"gatherv: xs\[1\] is \(2, \d\)"):
            gatherv([np.zeros((1, 3)), other])
    with pytest.raises(ValueError, match=r"gatherv: xs\[0\] is \(\)"):
        gatherv([np.zeros(())])
    for sizes in ([1, 1], [4, -1]):
        with pytest.raises(ValueError, match="scatterv: sizes are"):
            scatterv(np.zeros((3, 2)), sizes)
