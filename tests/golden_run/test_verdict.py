"""The verdict on outputs: tolerances, orders of addition, second outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from collops.golden.case_files.csv_cases import read_rows

from collops.golden_run.calls import RowCall, Truth
from collops.golden_run.rank import Report
from collops.golden_run.verdict import judge

CaseFile = Callable[..., Path]
SCATTER = "ReduceScatterVOperation"
LINEAR = "LinearParallelOperation"


def reports(outputs: Sequence[Sequence[Any]], backend: str = "shm") -> list[Report]:
    return [Report(outputs=tuple(own), backend=backend) for own in outputs]


def right_outputs(call: RowCall) -> list[list[Any]]:
    per_output = call.truth().outputs
    return [[per_rank[rank].copy() for per_rank in per_output] for rank in range(call.rank_size)]


def one_call(path: Path) -> RowCall:
    [row] = read_rows(path)
    return RowCall(row)


@pytest.mark.parametrize("dtype", ["float16", "bf16", "float"])
@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_sums_are_exact_unless_the_engine_has_an_order_of_its_own(
    case_file: CaseFile, dtype: str, reduce: str
) -> None:
    cells = {"operator": SCATTER, "ranks": 4, "rows": 64, "dtype": dtype}
    call = one_call(case_file({**cells, "params": {"reduceType": reduce}}))
    outputs = right_outputs(call)
    assert judge(call, reports(outputs)).passed
    first = outputs[2][0]
    first.reshape(-1).view(f"u{first.itemsize}")[7] ^= 1
    assert not judge(call, reports(outputs)).passed
    assert judge(call, reports(outputs, "hccl")).passed == (reduce == "sum")
    first.reshape(-1).view(f"u{first.itemsize}")[7] ^= 1 << (8 * first.itemsize - 3)
    assert not judge(call, reports(outputs, "hccl")).passed


def linear_call(case_file: CaseFile, **cells: Any) -> RowCall:
    params = {"type": 2, "backend": "lcoc", **cells.pop("params", {})}
    changes = {
        "operator": LINEAR,
        "params": params,
        "InNum": 2,
        "InDType": "float16;float16",
        "InFormat": "nd;nd",
        "InShape": "3,200;7,200",
        "OutShape": "6,7",
        "OutDType": "float16",
    }
    return one_call(case_file({**changes, **cells}))


def test_products_are_within_golden_s_bound_or_atb_s_tolerance(case_file: CaseFile) -> None:
    call = linear_call(case_file, DataGenRange="1,2;1,2")
    outputs = right_outputs(call)
    outputs[1][0][2, 3] = np.nextafter(outputs[1][0][2, 3], np.float16(9999))
    assert judge(call, reports(outputs)).passed
    outputs[1][0][2, 3] *= np.float16(1.002)
    found = judge(call, reports(outputs))
    assert not found.passed and "golden's bound" in found.text
    assert judge(call, reports(outputs), atb=True).passed
    outputs[1][0][2, 3] *= np.float16(1.01)
    assert not judge(call, reports(outputs), atb=True).passed


def test_the_gathered_x_is_exact(case_file: CaseFile) -> None:
    cells = {"OutNum": 2, "OutDType": "float16;float16", "OutFormat": "nd;nd"}
    call = linear_call(case_file, params={"keepIntermediate": True}, OutShape="6,7;6,200", **cells)
    outputs = right_outputs(call)
    assert judge(call, reports(outputs)).passed
    outputs[0][1][0, 0] = np.nextafter(outputs[0][1][0, 0], np.float16(9))
    for atb in (False, True):
        found = judge(call, reports(outputs), atb=atb)
        assert not found.passed
        assert found.text.startswith("output 1: different: 1 of 2400 elements")


@pytest.mark.parametrize("more", [0, 2])
def test_the_number_of_outputs_must_be_right(case_file: CaseFile, more: int) -> None:
    call = one_call(case_file({}))
    outputs = right_outputs(call)
    outputs[1] = outputs[1] * more
    found = judge(call, reports(outputs))
    assert not found.passed
    assert found.text == f"rank 1 has {more} outputs, expected 1"


def test_nothing_expected_is_nothing_compared(case_file: CaseFile) -> None:
    call = one_call(case_file({}))
    nothing = SimpleNamespace(
        expected=call.expected, stops_at="", truth=lambda: Truth([], "float16")
    )
    found = judge(nothing, reports([[], []]))  # type: ignore[arg-type]
    assert not found.passed
    assert "the case has none" in found.text


@pytest.mark.parametrize("error", [KeyError("rank0/x"), MemoryError(), IndexError(), OSError("no")])
def test_one_case_that_cannot_be_judged_fails_alone(
    case_file: CaseFile, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    call = one_call(case_file({}))
    outputs = right_outputs(call)

    def torn(self: RowCall) -> Truth:
        raise error

    monkeypatch.setattr(RowCall, "truth", torn)
    found = judge(call, reports(outputs))
    assert not found.passed
    assert found.text.startswith("golden cannot compute the expected outputs: ")
    assert isinstance(error, OSError) or type(error).__name__ in found.text


def test_outputs_of_another_dtype_fail_their_case_alone(case_file: CaseFile) -> None:
    call = one_call(case_file({}))
    outputs = [[output.astype(np.float32) for output in own] for own in right_outputs(call)]
    found = judge(call, reports(outputs))
    assert not found.passed
    assert "float16 is carried as float16, got an array float32" in found.text


def test_a_plot_that_cannot_be_drawn_is_only_said(case_file: CaseFile) -> None:
    call = one_call(case_file({}))
    outputs = [[output * 0 for output in own] for own in right_outputs(call)]

    def draw(*_: Any) -> None:
        raise OSError("no room")

    found = judge(call, reports(outputs), draw=draw)
    assert not found.passed
    assert found.text.endswith("no plot: OSError: no room")


def test_golden_must_have_an_answer(case_file: CaseFile) -> None:
    call = linear_call(case_file, params={"type": 7})
    found = judge(call, [Report(outputs=(np.zeros(1),))] * 2)
    assert not found.passed
    assert found.text.startswith("golden cannot compute the expected outputs: ")


@pytest.mark.parametrize(
    ("stage", "ends", "passed"),
    [
        ("E", [("execute", 8), ("execute", 102)], True),
        ("E", [("execute", 102), ("execute", 102)], False),
        ("I", [("infer_shape", 8), ("execute", 102)], False),
    ],
)
def test_a_rank_may_be_told_of_the_error_of_another_one(
    case_file: CaseFile, stage: str, ends: list[tuple[str, int]], passed: bool
) -> None:
    call = one_call(case_file({"expected": f"{stage}:ERROR_INVALID_TENSOR_DIM"}))
    names = {8: "ERROR_INVALID_TENSOR_DIM", 102: "ERROR_RANK_MISMATCH"}
    told = [Report(stage=step, code=code, name=names[code]) for step, code in ends]
    assert judge(call, told).passed == passed
