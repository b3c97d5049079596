"""The simulated libopapi, against numpy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.npu.simulated.simulated_operators import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    INNER,
    INVALID,
    NULL,
    Operators,
)
from tests.npu.simulated.simulated_rank import Rank

MATH_KEEP, MATH_DOWN, MATH_FLOAT16, MATH_HFLOAT32 = (ctypes.c_int8(i) for i in range(4))


def small(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize("name", ["aclnnMatmul", "aclnnMm"])
def test_a_product_of_views(on_ranks: Any, name: str, dtype: Any) -> None:
    """A transposed right side, and rows that lie apart in the left and the output."""

    def work(one: Rank) -> None:
        ops = Operators(one)
        left, right = small((5, 9), dtype), small((4, 7), dtype, 1)
        x, y, out = one.device(left), one.device(right), one.device(np.zeros((5, 8), dtype))
        ops.matmul(
            ops.tensor(x, (5, 7), (9, 1), 2),
            ops.tensor(y, (7, 4), (1, 7)),
            ops.tensor(out, (5, 4), (8, 1), 1),
            name=name,
        )
        want = left[:, 2:].astype(np.float32) @ right.T.astype(np.float32)
        np.testing.assert_array_equal(out.read()[:, 1:5].astype(np.float32), want)
        assert not out.read()[:, 5:].astype(bool).any()

    on_ranks(work, 1)


def test_a_product_is_rounded_once(on_ranks: Any) -> None:
    """2048 ones lose the last one if partial sums are float16: 2048 + 1 is 2048."""

    def work(one: Rank) -> tuple[float, float]:
        ops = Operators(one)
        x = ops.tensor(one.device(np.ones((1, 2050), np.float16)))
        y = ops.tensor(one.device(np.ones((2050, 1), np.float16)))
        half, single = one.empty((1, 1), np.float16), one.empty((1, 1), np.float32)
        ops.matmul(x, y, ops.tensor(half))
        ops.matmul(x, y, ops.tensor(single))
        return float(half.read()[0, 0]), float(single.read()[0, 0])

    assert on_ranks(work, 1) == [(2050.0, 2050.0)]


@pytest.mark.parametrize(("math", "exact"), [(0, True), (1, False), (2, False), (3, False)])
def test_lower_precision_loses_bits(on_ranks: Any, math: int, exact: bool) -> None:
    def work(one: Rank) -> float:
        ops = Operators(one)
        x = ops.tensor(one.device(np.array([[1 + 2**-12]], np.float32)))
        y, out = ops.tensor(one.device(np.ones((1, 1), np.float32))), one.empty((1, 1), np.float32)
        ops.matmul(x, y, ops.tensor(out), math)
        return float(out.read()[0, 0])

    assert on_ranks(work, 1) == [1 + 2**-12 if exact else 1.0]


@pytest.mark.parametrize(
    ("setting", "half", "brain"),
    [(None, 0, INVALID), ("1", 0, 0), ("0", INVALID, INVALID)],
)
def test_float32_out_of_16_bits(on_ranks: Any, setting: str | None, half: int, brain: int) -> None:
    def work(one: Rank) -> list[int]:
        ops = Operators(one)
        out = ops.tensor(one.empty((2, 2), FLOAT32))
        codes = []
        for dtype in (FLOAT16, BFLOAT16):
            x = ops.tensor(one.device(small((2, 2), dtype)))
            codes.append(ops.prepare("aclnnMatmul", x, x, out, MATH_KEEP)[0])
        return codes

    env = {} if setting is None else {"COLLOPS_SIM_MATMUL_FLOAT_OUT": setting}
    assert on_ranks(work, 1, **env) == [[half, brain]]


def test_work_waits_for_its_stream_and_reads_then(on_ranks: Any) -> None:
    def work(one: Rank) -> tuple[bool, float]:
        ops = Operators(one)
        x, out = one.device(np.ones(1, np.float32)), one.empty(1, np.float32)
        view, result = ops.tensor(x), ops.tensor(out)
        one.acl.SimHoldStream(one.stream)
        code, size, executor = ops.prepare("aclnnMuls", view, ops.scalar(3), result)
        assert (code, ops.launch("aclnnMuls", None, size, executor)) == (0, 0)
        ops.api.aclDestroyTensor(view)
        x.write(np.array([5]))
        is_busy = one.acl.aclrtSynchronizeStreamWithTimeout(one.stream, 50) != 0
        one.acl.SimReleaseStream(one.stream)
        assert one.sync() == 0
        return is_busy, float(out.read()[0])

    assert on_ranks(work, 1) == [(True, 15.0)]


def test_a_workspace_is_overwritten_and_kept(on_ranks: Any) -> None:
    def work(one: Rank) -> tuple[bool, int, int]:
        ops = Operators(one)
        x, out = ops.tensor(one.device(small((3, 3), FLOAT32))), one.empty((3, 3), FLOAT32)
        _, size, executor = ops.prepare("aclnnMm", x, x, ops.tensor(out), MATH_KEEP)
        workspace = one.device(np.zeros(size, np.uint8))
        one.acl.SimHoldStream(one.stream)
        assert ops.launch("aclnnMm", workspace, size, executor) == 0
        early = workspace.free()
        one.acl.SimReleaseStream(one.stream)
        assert one.sync() == 0
        return bool(workspace.read().all()), early, workspace.free()

    assert on_ranks(work, 1) == [(True, 100000, 0)]


def test_mistakes_in_the_first_phase(on_ranks: Any) -> None:
    def work(one: Rank) -> list[tuple[int, str]]:
        ops = Operators(one)
        memory = {d: one.device(small((2, 3), d)) for d in (FLOAT32, FLOAT16, BFLOAT16)}
        x, out = ops.tensor(memory[FLOAT32], (2, 2), (3, 1)), ops.tensor(one.empty((2, 2), FLOAT32))
        half, half_out = (ops.tensor(m, (2, 2), (2, 1)) for m in (memory[FLOAT16],) * 2)
        brain = ops.tensor(memory[BFLOAT16], (2, 2), (2, 1))
        destroyed = ops.tensor(memory[FLOAT32])
        assert ops.api.aclDestroyTensor(destroyed) == 0
        integers = ops.tensor(one.device(np.zeros((2, 2), np.int32)))
        outside = ops.tensor(memory[FLOAT32], (2, 2), (3, 2), 2)
        wide, one_scalar = ops.tensor(memory[FLOAT32]), ops.scalar(1)
        product = "aclnnMatmul"
        calls: list[tuple[str, list[Any], int, str]] = [
            (product, [None, x, out, MATH_KEEP], NULL, "self is null"),
            (product, [x, x, None, MATH_KEEP], NULL, "out is null"),
            (product, [destroyed, x, out, MATH_KEEP], INVALID, "was destroyed"),
            (product, [outside, x, out, MATH_KEEP], INVALID, "within its storage"),
            (product, [integers, x, out, MATH_KEEP], INVALID, "data type is not taken"),
            (product, [wide, x, out, MATH_KEEP], INVALID, "the shapes do not go together"),
            (product, [half, brain, half_out, MATH_KEEP], INVALID, "the promoted data type"),
            (product, [x, x, half_out, MATH_KEEP], INVALID, "the promoted data type"),
            (product, [half, half, half_out, MATH_HFLOAT32], INVALID, "float32 only"),
            (product, [brain, brain, brain, MATH_FLOAT16], INVALID, "not for bfloat16"),
            (product, [x, x, out, ctypes.c_int8(4)], INVALID, "no such cubeMathType"),
            ("aclnnAdd", [x, wide, one_scalar, out], INVALID, "the shapes differ"),
            ("aclnnAdd", [x, x, None, out], NULL, "the scalar is null"),
            ("aclnnCast", [x, 1, out], INVALID, "dtype is not the data type of out"),
        ]
        return [(ops.prepare(name, *args)[0], one.text(), *want) for name, args, *want in calls]

    [found] = on_ranks(work, 1)
    for code, text, want, words in found:
        assert (code, words in text) == (want, True), (text, words)


def test_mistakes_in_the_second_phase(on_ranks: Any) -> None:
    def work(one: Rank) -> list[int]:
        ops = Operators(one)
        x, out = ops.tensor(one.device(small((3, 3), FLOAT32))), one.empty((3, 3), FLOAT32)
        _, size, executor = ops.prepare("aclnnMm", x, x, ops.tensor(out), MATH_KEEP)
        workspace, host = one.empty(size, np.uint8), one.empty(size, np.uint8)
        host.address = np.zeros(size, np.uint8).ctypes.data
        codes = [
            ops.launch("aclnnMm", workspace, size, ctypes.c_void_p()),
            ops.launch("aclnnMatmul", workspace, size, executor),
            ops.launch("aclnnMm", workspace, size - 1, executor),
            ops.launch("aclnnMm", host, size, executor),
            ops.launch("aclnnMm", None, size, executor),
            ops.launch("aclnnMm", workspace, size, executor),
            ops.launch("aclnnMm", workspace, size, executor),
            ops.api.aclDestroyTensor(x),
            ops.api.aclDestroyTensor(x),
        ]
        assert one.sync() == 0
        values = np.zeros((3, 3), np.float32)
        at_host = one.empty((3, 3), np.float32)
        at_host.address = values.ctypes.data
        _, _, executor = ops.prepare("aclnnInplaceZero", ops.tensor(at_host))
        codes.append(ops.launch("aclnnInplaceZero", None, 0, executor))
        assert "this device's memory" in one.text()
        return codes

    assert on_ranks(work, 1) == [[NULL, *[INVALID] * 4, 0, INNER, 0, INVALID, INVALID]]


def test_an_executor_is_repeated_if_told(on_ranks: Any) -> None:
    def work(one: Rank) -> float:
        ops = Operators(one)
        x = one.device(np.array([3], np.float32))
        view = ops.tensor(x)
        _, _, executor = ops.prepare("aclnnMuls", view, ops.scalar(2), view)
        assert ops.api.aclSetAclOpExecutorRepeatable(executor) == 0
        for _ in range(3):
            assert ops.launch("aclnnMuls", None, 0, executor) == 0
        assert one.sync() == 0
        assert ops.api.aclDestroyAclOpExecutor(executor) == 0
        return float(x.read()[0])

    assert on_ranks(work, 1) == [24.0]


def test_a_call_can_be_told_to_fail(on_ranks: Any) -> None:
    def work(one: Rank) -> list[int]:
        ops = Operators(one)
        x = ops.tensor(one.device(small((3, 3), FLOAT32)))
        codes = [ops.prepare("aclnnMuls", x, ops.scalar(2), x)[0] for _ in range(2)]
        _, _, executor = ops.prepare("aclnnMuls", x, ops.scalar(2), x)
        return [*codes, ops.launch("aclnnMuls", None, 0, executor)]

    fail = "aclnnMulsGetWorkspaceSize:2:561103,aclnnMuls:1:361001"
    assert on_ranks(work, 1, COLLOPS_SIM_FAIL=fail) == [[0, 561103, 361001]]
