"""Refusals of infer_shape and get_workspace_size, which are local: code and message per row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from first_phase_rows import CALLS, SHAPES, Row
from right_calls import EVERY, LINEAR, RIGHT, create, refusal

import collops
from collops import TensorDesc as Desc


def nodes(rows: list[Row]) -> list[Any]:
    return [
        pytest.param(name, row, id=f"{name}-{row.code}-{row.message}-{number}")
        for number, row in enumerate(rows)
        for name in row.operators
    ]


@pytest.mark.parametrize("name", EVERY)
def test_a_right_call_passes(name: str) -> None:
    right, op = RIGHT[name], create(name)
    ins, outs = right.inputs(), right.outputs()
    shapes = [] if right.output is None else [right.output]
    assert op.infer_shape(ins) == [Desc(shape, "float32") for shape in shapes]
    assert (op.get_workspace_size(ins, outs) > 0) == (name == "LinearParallel")


@pytest.mark.parametrize(("name", "row"), nodes(SHAPES))
def test_infer_shape_refuses(name: str, row: Row) -> None:
    ins, outs = RIGHT[name].inputs(), RIGHT[name].outputs()
    row.change(ins, outs)
    op = create(name, **row.fields)
    check(name, row, refusal(op.infer_shape, ins))
    check(name, row, refusal(op.get_workspace_size, ins, outs))


@pytest.mark.parametrize(("name", "row"), nodes(CALLS))
def test_get_workspace_size_refuses(name: str, row: Row) -> None:
    ins, outs = RIGHT[name].inputs(), RIGHT[name].outputs()
    row.change(ins, outs)
    check(name, row, refusal(create(name).get_workspace_size, ins, outs))


def check(name: str, row: Row, error: collops.Error) -> None:
    assert error.message.startswith(f"{name}: ")
    assert row.message in error.message
    assert error.code == row.code


def test_every_operator_has_rows_of_both() -> None:
    for rows in (SHAPES, CALLS):
        named = {name for row in rows for name in row.operators}
        # What is wrong in one is wrong in the other of the two AllToAllV.
        assert named | {"AllToAllV", "AllToAllVV2"} == set(EVERY)


def test_two_faults_give_the_code_of_the_earlier_line() -> None:
    ins, outs = RIGHT["AllGatherV"].inputs(), RIGHT["AllGatherV"].outputs()
    ins[0] = np.zeros((4, 2), np.uint16).T  # dtype (13) comes before contiguous (14)
    ins[2] = np.array([3, -1])
    assert refusal(create("AllGatherV").get_workspace_size, ins, outs).code == 13


def test_a_reduction_may_be_in_place() -> None:
    x = RIGHT["AllReduce"].inputs()
    assert create("AllReduce").get_workspace_size(x, x) == 0


def test_transpose_takes_matrices() -> None:
    op = create("AllToAll", transpose=True)
    assert [tuple(d.shape) for d in op.infer_shape([Desc((4, 6), "bool")])] == [(8, 3)]


def test_a_wrong_list_is_mended_by_update() -> None:
    op = create("LinearParallel", gather_rows=[4, 3])
    ins = RIGHT["LinearParallel"].inputs()
    assert "gatherRows[0] is 4" in refusal(op.infer_shape, ins).message
    fields = {"rank": 0, "rank_size": 2, "backend": "shm", "comm_domain": "refusals", **LINEAR}
    op.update(collops.LinearParallelParam(**fields, gather_rows=[3, 9]))
    assert op.infer_shape(ins) == [Desc((12, 5), "float32")]


def test_prepack_refuses() -> None:
    op = create("LinearParallel")
    for weight, code, message in (
        (np.zeros((5, 4)), 13, "weight is float64"),
        (np.zeros((4, 5), np.float32).T, 14, "weight is not contiguous"),
        (Desc((5, 4), "float32"), 14, "weight of shape [5, 4]"),
    ):
        error = refusal(op.prepack, weight)
        assert error.code == code
        assert error.message.startswith("LinearParallel")
        assert message in error.message
    with pytest.raises(collops.Error, match="prepack\\(\\) is for operators with a weight"):
        create("AllGatherV").prepack(1)
