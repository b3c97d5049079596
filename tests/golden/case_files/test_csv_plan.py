"""Which rows run, which are skipped and why, and which are known to differ."""

from __future__ import annotations

from typing import Any

import pytest
from golden.case_files.csv_plan import plan_row
from golden.case_files.csv_row import CsvRow, Expectation, RowTensor

COUNTS = (RowTensor("int64", (1,)), RowTensor("int64", (2,)), RowTensor("int64", (2,)))
Y = RowTensor("float16", (8,))
INI = Expectation("infer_shape", "ERROR_INVALID_TENSOR_INI_MATCH")
SIZE = Expectation("infer_shape", "ERROR_INVALID_TENSOR_SIZE")
DIM = Expectation("infer_shape", "ERROR_INVALID_TENSOR_DIM")


def row(
    operator: str = "AllGatherVOperation",
    dtype: str = "float16",
    *,
    shape: tuple[int, ...] = (4, 4),
    form: str = "nd",
    expected: Expectation = Expectation(),  # noqa: B008
    soc: tuple[str, ...] = (),
    counts: tuple[RowTensor, ...] = COUNTS,
    **params: Any,
) -> CsvRow:
    inputs = (RowTensor(dtype, shape, form), *counts, Y)
    outputs = (RowTensor(dtype, (8, 4)),)
    return CsvRow("a.csv:2", 1, "x", operator, params, inputs, outputs, expected, soc)


@pytest.mark.parametrize("operator", ["AllGatherVOperation", "ReduceScatterVOperation"])
def test_plain_rows_run(operator: str) -> None:
    assert plan_row(row(operator)).action == "run"
    assert plan_row(row(operator, expected=DIM, soc=("Ascend310P", "Ascend910B"))).action == "run"
    assert plan_row(row(operator, soc=("Ascend310P",))).action == "run"
    assert plan_row(row(operator, shape=(2**30, 4), expected=SIZE)).action == "run"


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (row("FillOperation"), "FillOperation is not an operator of collops"),
        (row(form="fractal_nz"), "FRACTAL_NZ data"),
        (row(form="fractal_nz", expected=DIM), "FRACTAL_NZ data"),
        (row(rankSize=1099511627776), "more than 128 ranks"),
        (row(rankSize=400000000, expected=DIM), "more than 128 ranks"),
        (row(shape=(2, 2, 2, 2, 2, 2, 2, 2097152)), "a tensor of 512 MiB or more"),
    ],
)
def test_skipped_rows(case: CsvRow, reason: str) -> None:
    plan = plan_row(case)
    assert (plan.action, plan.reason) == ("skip", reason)


@pytest.mark.parametrize(
    ("soc", "expected", "excused"),
    [
        (("Ascend310P",), INI, True),
        (("Ascend310P", "Ascend910B"), INI, False),
        ((), INI, False),
        (("Ascend310P",), Expectation(), False),
    ],
)
def test_rows_whose_error_is_another_chip_s_run_with_an_excuse(
    soc: tuple[str, ...], expected: Expectation, excused: bool
) -> None:
    plan = plan_row(row(expected=expected, soc=soc))
    assert plan.action == "run"
    assert plan.excuse == ("the expected error exists on another SoC alone" if excused else "")


@pytest.mark.parametrize(
    "case",
    [
        row("LinearParallelOperation", type=4),
        row("LinearParallelOperation", type=3, quantType=-1),
        row("LinearParallelOperation", type=0, quantType=0),
        row("LinearParallelOperation", type=0, quantType=3, expected=DIM),
        row("LinearParallelOperation", type=5, quantType=-1),
        row("LinearParallelOperation", type=6, quantType=3),
        row("AllReduceOperation", quantType=0),
        row("AllReduceOperation", quantType=2),
        row("LinearParallelOperation", type=0, quantType=5),
        row("AllReduceOperation", quantType="x"),
    ],
)
def test_quantised_and_moe_rows_run(case: CsvRow) -> None:
    assert plan_row(case).reason == ""


@pytest.mark.parametrize("form", ["nhwc", "fractal_nz"])
def test_rows_that_expect_the_refusal_of_a_format_run(form: str) -> None:
    assert plan_row(row(form=form, expected=INI)).action == "run"


@pytest.mark.parametrize(
    ("case", "action"),
    [
        (row(dtype="bool", expected=INI), "differs"),
        (row(dtype="float64", expected=INI), "differs"),
        (row(dtype="uint32", expected=INI), "run"),
        (row(dtype="bool", expected=INI, form="nhwc"), "run"),
        (row(dtype="bool", expected=INI, counts=COUNTS[:2]), "run"),
        (row(dtype="bool", expected=INI, counts=(Y, *COUNTS[1:])), "run"),
        (row("ReduceScatterVOperation", "float32", expected=INI), "differs"),
        (row("ReduceScatterVOperation", "bool", expected=INI), "run"),
        (row(shape=(0, 4), expected=SIZE), "differs"),
        (row(shape=(4, 0), expected=SIZE), "run"),
        (row(shape=(0, 0), expected=SIZE), "run"),
        (row("ReduceScatterVOperation", shape=(0, 4), expected=SIZE), "differs"),
    ],
)
def test_rows_that_differ_by_intent(case: CsvRow, action: str) -> None:
    plan = plan_row(case)
    assert plan.action == action
    assert bool(plan.reason) == (action == "differs")
