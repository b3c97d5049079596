"""Rows of all-to-alls and of messages: the inputs and the expected outputs of each rank."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.case_files.csv_plan import plan_row
from golden.case_files.csv_row import CsvRow, Expectation, RowTensor
from golden.case_files.row_case import (
    expected_outputs,
    rank_operator,
    rank_params,
)
from golden.case_files.row_inputs import rank_inputs
from golden.data.exchange import exchange_of_lists

ALL, BY_STRUCT, BY_TENSORS = "AllToAllOperation", "AllToAllVOperation", "AllToAllVV2Operation"
WORKS = Expectation()
CREATE = Expectation("create", "ERROR_INVALID_PARAM")
SHAPE = Expectation("infer_shape", "ERROR_INVALID_TENSOR_DIM")
INFER = Expectation("infer_shape", "ERROR_INVALID_PARAM")
SETUP = Expectation("setup", "ERROR_INVALID_PARAM")
SETUP_DIM = Expectation("setup", "ERROR_INVALID_TENSOR_DIM")
INI = Expectation("infer_shape", "ERROR_INVALID_TENSOR_INI_MATCH")
SIZE = Expectation("infer_shape", "ERROR_INVALID_TENSOR_SIZE")


def tensors(x: tuple[int, ...], ranks: int, length: int) -> tuple[RowTensor, ...]:
    counts = [RowTensor("int64", (ranks,))] * 4
    return (RowTensor("float16", x), *counts, RowTensor("int8", (length,)))


def exchange_row(
    operator: str = BY_TENSORS,
    x: tuple[int, ...] = (4, 3),
    length: int = 12,
    expected: Expectation = Expectation(),  # noqa: B008
    **params: Any,
) -> CsvRow:
    given = {"rankSize": 2, "backend": "hccl", **params}
    inputs = tensors(x, 2, length)
    if operator != BY_TENSORS:
        inputs = inputs[:1]
    shape = x if operator == ALL else (1, length)
    outputs = (RowTensor("float16", shape),)
    return CsvRow("a.csv:2", 1, "x", operator, given, inputs, outputs, expected)


def test_customized_counts_are_equal_parts() -> None:
    row = exchange_row(x=(7, 3), length=20)
    _, sent, sdispls, received, rdispls, y = rank_inputs(row, 1)
    assert (sent.tolist(), sdispls.tolist()) == ([10, 10], [0, 10])
    assert (received.tolist(), rdispls.tolist()) == ([10, 10], [0, 10])
    assert (y.dtype, y.shape, y.any()) == (np.int8, (20,), False)


def test_customized_counts_where_ranks_have_other_rows(tmp_path: Path) -> None:
    for rank, rows in enumerate((2, 6)):
        np.save(tmp_path / f"x{rank}.npy", np.full((rows, 3), rank, np.float16))
    row = replace(exchange_row(), place=f"{tmp_path / 'a.csv'}:2")
    x = replace(row.inputs[0], file="x{rank}.npy")
    row = replace(row, inputs=(x, *row.inputs[1:]))
    inputs = [rank_inputs(row, rank) for rank in range(2)]
    assert [own[1].tolist() for own in inputs] == [[3, 3], [9, 9]]
    assert [own[3].tolist() for own in inputs] == [[3, 9], [3, 9]]
    outputs = expected_outputs(row, inputs)
    assert all(own[0].tolist() == [[0] * 3 + [1] * 9] for own in outputs)


def lists(
    sent: Any, received: Any, sdispls: Any = (0, 3), rdispls: Any = (0, 3)
) -> dict[str, list[Any]]:
    return {
        "sendCounts": list(sent),
        "sdispls": list(sdispls),
        "recvCounts": list(received),
        "rdispls": list(rdispls),
    }


def test_each_rank_has_its_own_of_a_list_of_lists() -> None:
    given = lists([[1, 2], [3, 4]], [[1, 3], [2, 4]])
    row = exchange_row(BY_STRUCT, **given)
    params = rank_params(row, 1)
    assert {name: params[name] for name in given} == {
        "sendCounts": [3, 4],
        "sdispls": [0, 3],
        "recvCounts": [2, 4],
        "rdispls": [0, 3],
    }
    assert params["rank"] == 1
    with pytest.raises(ValueError, match="a.csv:2: OpParam has no list sendCounts for rank 2"):
        rank_params(row, 2)
    without = exchange_row(BY_STRUCT, sendCounts=[6, 6])
    with pytest.raises(ValueError, match="a.csv:2: OpParam has no list sdispls for rank 0"):
        expected_outputs(without, [rank_inputs(without, rank) for rank in range(2)])


def test_counts_that_do_not_fit_together() -> None:
    table = {name: [line, line] for name, line in lists([1, 2], [1, 2]).items()}
    with pytest.raises(ValueError, match=r"rank 0's sendCounts\[1\] is 2, rank 1 has other recvC"):
        exchange_of_lists(table)


def message(operator: str, expected: Expectation = Expectation(), **params: Any) -> CsvRow:  # noqa: B008
    given = {"rankSize": 3, **params}
    x = (RowTensor("int8", (2, 2)),)
    return CsvRow("a.csv:2", 1, "x", operator, given, x, x, expected)


@pytest.mark.parametrize(
    ("row", "operators", "params"),
    [
        (message("SendOperation"), ["Send", "Recv", ""], {"rankSize": 3, "rank": 1, "srcRank": 0}),
        (message("RecvOperation"), ["Recv", "Send", ""], {"rankSize": 3, "rank": 1, "destRank": 0}),
        (
            message("SendOperation", rank=2, destRank=1),
            ["", "Recv", "Send"],
            {"rankSize": 3, "rank": 1, "srcRank": 2},
        ),
    ],
)
def test_the_peer_of_a_message_has_the_other_side(
    row: CsvRow, operators: list[str], params: dict[str, int]
) -> None:
    named = [f"{name}Operation" if name else "" for name in operators]
    assert [rank_operator(row, rank) for rank in range(3)] == named
    assert rank_params(row, 1) == params
    actor = named.index(row.operator)
    assert rank_params(row, actor) == dict(row.params)
    inputs = [rank_inputs(row, rank) for rank in range(3)]
    outputs = expected_outputs(row, inputs)
    source, destination = named.index("SendOperation"), named.index("RecvOperation")
    assert outputs[destination][0].tobytes() == inputs[source][0].tobytes()


@pytest.mark.parametrize("expected", [CREATE, SHAPE, SETUP])
def test_a_message_that_must_fail_before_execute_runs_on_one_rank(expected: Expectation) -> None:
    row = message("SendOperation", expected, rank=1, destRank=0)
    assert [rank_operator(row, rank) for rank in range(3)] == ["", "SendOperation", ""]
    late = replace(row, expected=Expectation("execute", "ERROR_RANK_MISMATCH"))
    assert rank_operator(late, 0) == "RecvOperation"
    assert rank_operator(message("SendOperation", CREATE, destRank="x"), 1) == ""
    outside = message("SendOperation", CREATE, rank=5)
    assert rank_operator(outside, 0) == "SendOperation"
    assert rank_params(outside, 0)["rank"] == 5


OVERLAP = lists([6, 6], [6, 6], (0, 6), (0, 5))
DIFFERENT: list[tuple[CsvRow, str, Expectation | None]] = [
    (exchange_row(ALL, backend="lccl", rankSize=3, expected=CREATE), "lccl takes any", WORKS),
    (exchange_row(ALL, backend="lccl", rankSize=4, expected=CREATE), "", None),
    (exchange_row(ALL, backend="hccl", rankSize=3, expected=CREATE), "", None),
    (exchange_row(ALL, (5, 3)), "rankSize must divide x", SHAPE),
    (exchange_row(ALL, (5, 2)), "", None),
    (exchange_row(ALL, (5, 3), expected=SHAPE), "", None),
    (exchange_row(ALL, (2, 4), transpose=True, expected=SHAPE), "transpose takes every size", None),
    (exchange_row(ALL, (2, 3), transpose=True, expected=SHAPE), "", None),
    (exchange_row(ALL, (0, 4), expected=SIZE), "a rank may have no rows", WORKS),
    (exchange_row(ALL, (4, 0), expected=SIZE), "", None),
    (exchange_row(BY_STRUCT, **OVERLAP), "blocks must not overlap", INFER),
    (exchange_row(BY_STRUCT, **OVERLAP, expected=INFER), "", None),
    (exchange_row(BY_STRUCT, **lists([6, 6], [6, 6], (0, 6), (6, 0))), "", None),
    (exchange_row(BY_STRUCT), "", None),
    (exchange_row(), "", None),
    (exchange_row(expected=SETUP), "", None),
    (exchange_row(length=11, expected=SETUP), "what does not fit a tensor is ERR", SETUP_DIM),
    (exchange_row(x=(0, 3), expected=SIZE), "a rank may have no rows", None),
    (message("RecvOperation", replace(SIZE)), "", None),
]


@pytest.mark.parametrize(("row", "reason", "instead"), DIFFERENT)
def test_rows_that_differ_by_intent(row: CsvRow, reason: str, instead: Expectation | None) -> None:
    plan = plan_row(row)
    assert plan.action == ("differs" if reason else "run")
    assert plan.reason.startswith(reason)
    assert plan.instead == instead


def with_input(row: CsvRow, position: int, **changes: Any) -> CsvRow:
    inputs = list(row.inputs)
    inputs[position] = replace(inputs[position], **changes)
    return replace(row, inputs=tuple(inputs))


def test_numbers_of_the_tensors_that_differ_by_intent(tmp_path: Path) -> None:
    overlap = with_input(exchange_row(), 4, generator="zero")
    assert plan_row(overlap).instead == SETUP
    assert plan_row(replace(overlap, expected=SETUP)).action == "run"
    for position in (2, 4):
        far = with_input(exchange_row(expected=SETUP), position, generator="random")
        far = with_input(far, position, range=(9.0, 9.0))
        assert plan_row(far).instead == SETUP_DIM
    nothing = with_input(exchange_row(expected=SETUP), 3, generator="zero")
    assert plan_row(nothing).instead == SETUP_DIM
    longer = with_input(exchange_row(expected=SETUP), 1, shape=(3,))
    assert plan_row(longer).instead == SHAPE
    two = with_input(exchange_row(expected=SETUP), 1, shape=(1, 2))
    assert plan_row(two).action == "run"
    gone = replace(with_input(exchange_row(), 4, file="gone.npy"), place=f"{tmp_path}/a.csv:2")
    assert plan_row(gone).action == "run"


@pytest.mark.parametrize(
    ("row", "dtype", "differs"),
    [
        (exchange_row(ALL, expected=INI), "bool", True),
        (exchange_row(ALL, expected=INI), "int16", False),
        (exchange_row(ALL, transpose=True, expected=INI), "int16", True),
        (exchange_row(ALL, transpose=True, expected=INI), "int8", False),
        (exchange_row(BY_STRUCT, expected=INI), "float64", True),
        (exchange_row(expected=INI), "uint8", True),
        (exchange_row(expected=INI), "uint32", False),
        (message("SendOperation", INI), "bool", True),
        (message("RecvOperation", INI), "float32", False),
    ],
)
def test_dtypes_that_differ_by_intent(row: CsvRow, dtype: str, differs: bool) -> None:
    row = with_input(row, 0, dtype=dtype)
    row = replace(row, outputs=tuple(replace(tensor, dtype=dtype) for tensor in row.outputs))
    assert plan_row(row).action == ("differs" if differs else "run")
    wrong = with_input(row, 0, format="nhwc")
    assert plan_row(wrong).action == "run"
