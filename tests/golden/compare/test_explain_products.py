"""Faults of quantised products and of experts, planted by hand, are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.case_files import write_cases
from golden.cases import Case, all_cases, all_outputs, case_bounds, case_layout, inputs
from golden.compare import compare
from golden.data import fill
from golden.data.dtypes import from_float32
from golden.explain import KINDS
from golden.operators.linear_parallel.experts import segments
from golden.operators.linear_parallel.quantised import scale_values

from tests.golden.compare.test_compare_command import run

Array = np.ndarray[Any, Any]
OUTPUTS = dict[str, list[Array]]


def one(text: str, operator: str = "linear_parallel") -> tuple[Case, list[dict[str, Array]]]:
    [case] = all_cases(operator, text=text)
    return case, inputs(case)


def explained(case: Case, got: list[Array]) -> str:
    right = [outputs[0] for outputs in all_outputs(case)]
    how = {"bounds": case_bounds(case), "layout": case_layout(case)}
    diagnosis = compare(got, right, case.output_dtype, **how).diagnosis
    assert diagnosis.kind in KINDS
    return diagnosis.text


def products(tensors: dict[str, Array], total: Array | None = None) -> Array:
    """W8A8 with the scale of each column, with a sum that may be given."""
    x, weight = tensors["x"].astype(np.int64), tensors["weight"].astype(np.int64)
    total = x @ weight.T if total is None else total
    total = (total + tensors["bias"].reshape(1, -1)).astype(np.int32)
    return total.astype(np.float32) * scale_values(tensors["scale"]).reshape(1, -1)


def half(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return values.astype(np.float16)


def saturated(tensors: dict[str, Array]) -> Array:
    """Sums of vpmaddubsw: of bytes without a sign by signed ones, two at a time, in 16 bits."""
    x, weight = tensors["x"].astype(int), tensors["weight"].astype(int)
    total = np.zeros((len(x), len(weight)), int)
    for i, j in np.ndindex(total.shape):
        terms = (x[i] + 128) * weight[j]
        pairs = [terms[at : at + 2].sum() for at in range(0, len(terms), 2)]
        total[i, j] = sum(max(-32768, min(32767, pair)) for pair in pairs) - 128 * weight[j].sum()
    return total


def test_scales_sums_and_biases_of_w8a8() -> None:
    case, tensors = one("p2.quantised-saturating-64")
    scales = [scale_values(own["scale"]).reshape(1, -1) for own in tensors]
    float16 = [half(products(own)) for own in tensors]
    assert [y.tolist() for y in float16] == [y.tolist() for [y] in all_outputs(case)]
    twice = [half(products(own) * s) for own, s in zip(tensors, scales, strict=True)]
    assert explained(case, twice) == "wrong scale: the scale was applied twice in all outputs"
    once = [float16[0], twice[1]]
    assert explained(case, once) == "wrong scale: the scale was applied twice in rank 1"
    pairs = [half(products(own, saturated(own))) for own in tensors]
    said = explained(case, pairs)
    assert said.startswith("int8 saturation: sums of two products saturated at 16 bits, x shifted")


def test_a_bias_after_the_scale_and_one_rank_s_fault_in_a_sum() -> None:
    case, tensors = one("p2.quantised-w8a8-pure-channel-full")
    late = [
        (products({**own, "bias": own["bias"] * 0}) + own["bias"].reshape(1, -1)).astype(np.float16)
        for own in tensors
    ]
    said = "wrong bias: the bias was added after the scale in all outputs"
    assert explained(case, late) == said
    case, tensors = one("p2.quantised-saturating-1025")
    parts = [products(tensors[0]), products(tensors[1], saturated(tensors[1]))]
    total = from_float32(parts[0] + parts[1])
    assert explained(case, [total] * 2).endswith("x shifted by 128 by rank 1 alone in all outputs")


def test_an_offset_of_w8a16_after_the_scale() -> None:
    case, tensors = one("p2.quantised-w8a16-pure-channel-whole")
    outputs = []
    for own in tensors:
        scale, offset = (own[name].reshape(1, -1).astype(np.float32) for name in ("scale", "bias"))
        weight = own["weight"].astype(np.float32)
        factor = (weight.T if case.linear and case.linear.trans_weight else weight) * scale + offset
        y = own["x"].astype(np.float32) @ factor.astype(np.float16).astype(np.float32)
        outputs.append((y + own["residual"].reshape(1, -1)).astype(np.float16))
    assert (
        explained(case, outputs)
        == "wrong bias: the offset was added after the scale in all outputs"
    )


def test_an_order_by_source_and_rows_that_were_dropped() -> None:
    case, tensors = one("p4.experts-there-4x1-mixed")
    assert case.linear is not None
    right = [y for [y] in all_outputs(case)]
    other = []
    for rank, y in enumerate(right):
        own = segments(case.linear, tensors[0]["tokens"], rank)
        rows = [np.arange(s.row, s.row + s.rows) for s in sorted(own, key=lambda s: s.source)]
        order = np.concatenate(rows)
        other.append(np.concatenate([y[order], y[len(order) :]]))
    said = "wrong expert order: the rows lie by source, then by expert in all outputs"
    assert explained(case, other) == said
    dropped = [y.copy() for y in right]
    dropped[1][9:] = 0
    gone = int(right[1][9:].any(axis=1).sum())
    assert gone > 2
    assert explained(case, dropped) == (
        f"dropped rows: {gone} rows were left zero, the first is row 9 of rank 1"
    )


def test_the_residual_that_every_rank_added() -> None:
    case, _ = one("p3.exact-one_batch")
    tensors = inputs(case)
    total = sum(own["residual"].reshape(1, -1) for own in tensors)
    right = [y for [y] in all_outputs(case)]
    wrong = [
        y - own["residual"].reshape(1, -1) + total for y, own in zip(right, tensors, strict=True)
    ]
    said = "wrong residual: every rank added its residual in all outputs"
    assert explained(case, wrong) == said


def test_an_all_reduce_that_adds_the_offset_once() -> None:
    case, tensors = one("p4.quantised-tensor", "all_reduce")
    total = sum(own["x"].astype(np.float32) for own in tensors)
    outputs = [half((total + own["offset"].astype(np.float32)) * own["scale"]) for own in tensors]
    said = "wrong bias: the offset was added once, not by every rank in all outputs"
    assert explained(case, outputs) == said


def test_rows_that_moe_dispatch_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = fill((9, 6), "float16", 0)
    np.save(tmp_path / "right.npy", right)
    np.save(tmp_path / "npu.npy", np.concatenate([right[:6], np.zeros((3, 6), np.float16)]))
    words = [tmp_path / "npu.npy", tmp_path / "right.npy", "--op", "moe_dispatch"]
    lines, _ = run(capsys, *words, "--dtype", "float16", status=1)
    said = "dropped rows: 3 rows were left zero, the first is row 6 of the output"
    assert f"pattern: {said}" in lines


@pytest.mark.parametrize(
    ("factors", "text"),
    [
        ([[0.25]], "all elements have the factor 0.25 in the output"),
        ([[2, 0.5, 4]], "each column has a factor of its own, from 0.5 to 4, in the output"),
        ([[2], [1], [4], [0.5]], "each row has a factor of its own, from 0.5 to 4, in the output"),
    ],
)
def test_without_inputs_a_factor_is_found(factors: list[list[float]], text: str) -> None:
    right = np.random.default_rng(5).uniform(-3, 3, (4, 3)).astype(np.float32)
    wrong = (right * np.array(factors, np.float32)).astype(np.float16)
    result = compare([wrong], [right.astype(np.float16)], "float16", labels=[""])
    assert result.diagnosis.text == f"wrong scale: {text}"


def test_compare_explains_a_saved_output_by_the_case_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case, tensors = one("p2.quantised-saturating-64")
    write_cases([case], tmp_path)
    saved = {
        f"rank{r}/output": half(products(own, saturated(own))) for r, own in enumerate(tensors)
    }
    np.savez(tmp_path / "npu.npz", **saved)
    words = [str(tmp_path / "npu.npz"), str(tmp_path / f"{case.id}.npz")]
    lines, _ = run(capsys, *words, "--op", "linear_parallel", "--dtype", "float16", status=1)
    said = "pattern: int8 saturation: sums of two products saturated at 16 bits, x shifted by 128"
    assert f"{said} in all outputs" in lines
