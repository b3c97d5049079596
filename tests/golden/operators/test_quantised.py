"""Quantised products and AllReduce: their definition step by step, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden.operators.all_reduce import all_reduce_quantised
from golden.operators.linear_parallel.groups import LinearParallel
from golden.operators.linear_parallel.quantised import (
    PER_CHANNEL,
    PER_GROUP,
    PER_TENSOR,
    PER_TOKEN,
    Scales,
    quantised_product,
)
from golden.operators.linear_parallel.reference import linear_parallel

F32, F16 = np.float32, np.float16
Array = np.ndarray[Any, Any]


def int8(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-128, 128, shape, np.int8)


def uniform(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(F32)


def test_each_step_of_w8a8_is_rounded_from_left_to_right() -> None:
    x, w, scale, token = int8(5, 70), int8(70, 3, seed=1), uniform(3), uniform(5, seed=1)
    bias = np.array([2**31 - 1, -(2**31), 7], np.int32)
    got = quantised_product(x, w, Scales(scale, bias, token), PER_TOKEN)
    for i, j in np.ndindex(got.shape):
        total = sum(int(a) * int(b) for a, b in zip(x[i], w[:, j], strict=True)) + int(bias[j])
        wrapped = (total + 2**31) % 2**32 - 2**31
        assert got[i, j] == F32(F32(F32(wrapped) * scale[j]) * token[i])


def test_a_sum_past_24_bits_is_rounded_to_even_before_the_scale() -> None:
    x, w = np.ones((1, 1), np.int8), np.ones((1, 2), np.int8)
    bias = np.array([16777216, 16777218], np.int32)
    got = quantised_product(x, w, Scales(np.ones(2, F32), bias))
    assert got.tolist() == [[16777216.0, 16777220.0]]


@pytest.mark.parametrize(
    ("quant_type", "group", "shape"),
    [
        (PER_TENSOR, 0, (1,)),
        (PER_CHANNEL, 0, (1, 3)),
        (PER_GROUP, 4, (3, 3)),
        (PER_GROUP, 1, (9, 3)),
    ],
)
def test_the_weight_of_w8a16_is_rounded_to_the_dtype_of_x(
    quant_type: int, group: int, shape: tuple[int, ...]
) -> None:
    w, scale, offset = int8(9, 3), uniform(*shape).astype(F16), uniform(*shape, seed=1).astype(F16)
    got = quantised_product(np.eye(9, dtype=F16), w, Scales(scale, offset), quant_type, group)
    lines = [line.reshape(-1, scale.shape[-1]) for line in (scale, offset)]
    for i, j in np.ndindex(got.shape):
        own = [line[i // group if group else 0, j % line.shape[1]] for line in lines]
        assert got[i, j] == F16(F32(w[i, j] + F32(own[1])) * F32(own[0]))


def test_scales_per_token_are_gathered_with_their_rows() -> None:
    xs, weights = [int8(2, 4), int8(2, 4, seed=1)], [int8(4, 3), int8(4, 3, seed=1)]
    call = LinearParallel(2, 2, trans_weight=False, quant_type=PER_TOKEN, out_dtype="float32")
    scales = [Scales(uniform(3, seed=r), token_scale=uniform(2, seed=r + 2)) for r in range(2)]
    tokens = np.concatenate([uniform(2, seed=2), uniform(2, seed=3)])
    for r, [y] in enumerate(linear_parallel(call, xs, weights, scales=scales)):
        whole = Scales(uniform(3, seed=r), token_scale=tokens)
        assert np.array_equal(y, quantised_product(np.concatenate(xs), weights[r], whole))


def test_a_quantised_residual_is_added_before_the_only_rounding() -> None:
    call = LinearParallel(
        0, 2, trans_weight=False, quant_type=PER_TENSOR, out_dtype="float16", has_residual=True
    )
    xs, weights = ([np.full((1, 1), v, np.int8) for v in pair] for pair in ((32, 41), (32, 25)))
    scales, residual = [Scales(np.ones(1, F32))] * 2, [np.ones(1, F16)] * 2
    # 1024 + 1025 lies between two float16, and 2050 is one.
    [[y], _] = linear_parallel(call, xs, weights, residual, scales=scales)
    assert y.tolist() == [[2050.0]]


@pytest.mark.parametrize(
    ("scales", "quant_type", "group", "message"),
    [
        (Scales(uniform(4)), PER_CHANNEL, 0, r"scale is \[4\], expected \[1, 3\]"),
        (Scales(uniform(3)), PER_TENSOR, 0, r"scale is \[3\], expected \[1, 1\]"),
        (Scales(uniform(3), np.zeros(1, np.int32)), PER_CHANNEL, 0, r"bias is \[1\]"),
        (Scales(uniform(3), token_scale=uniform(4)), PER_TOKEN, 0, r"perTokenScale is \[4\]"),
        (Scales(uniform(2, 3)), PER_GROUP, 4, "int8 x has no scale per group"),
    ],
)
def test_scales_that_do_not_fit(scales: Scales, quant_type: int, group: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quantised_product(int8(2, 8), int8(8, 3), scales, quant_type, group)


def test_an_int8_x_needs_the_dtype_of_its_output() -> None:
    call = LinearParallel(3, 1, trans_weight=False, quant_type=PER_TENSOR)
    with pytest.raises(ValueError, match="needs outDataType, got ''"):
        linear_parallel(call, [int8(2, 4)], [int8(4, 3)], scales=[Scales(np.ones(1, F32))])


def test_all_reduce_scales_the_sum_of_many_ranks() -> None:
    xs = [np.full((1, 16), 127 - r % 2, np.int8) for r in range(300)]
    scales = [np.linspace(0.5, 1.7, 16).astype(F16)] * 300
    [y, *_] = all_reduce_quantised(xs, scales, [np.array([-3], F16)] * 300)
    wanted = [F16(F32(300 * 126.5 + 300 * -3) * F32(scale)) for scale in scales[0]]
    assert y[0].tolist() == wanted
    with pytest.raises(ValueError, match=r"scale of rank 0 is \[2\]"):
        all_reduce_quantised(xs, [scales[0][:2]] * 300, [np.ones(1, F16)] * 300)
    with pytest.raises(ValueError, match=r"offset of rank 0 is \[2\], not \[1\]"):
        all_reduce_quantised(xs, scales, [np.ones(2, F16)] * 300)
