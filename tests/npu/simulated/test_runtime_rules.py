"""Rules of CANN's runtime and of aclnn that the simulated ones hold their callers to."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.npu.simulated.simulated_rank import I32, I64, U64, Memory, P, Rank

UNJOINED, STREAM_CAPTURED, EVENT_CAPTURED = 107025, 107027, 107028
NOT_CAPTURED, CONFLICT, UNMATCHED = 107029, 107032, 107036
NOT_IN_CAPTURE, WAITS_IN_CAPTURE = 107030, 107041
OPERATOR_NOT_FOUND = 100024
DEVICE_TO_HOST, DEVICE_TO_DEVICE = 2, 3
RELAXED = 2
MATH_KEEP, MATH_DOWN, MATH_FLOAT16, MATH_HFLOAT32 = (ctypes.c_int8(i) for i in range(4))


class Capture:
    """A stream that begins a capture, a second one, and what goes from one to the other."""

    def __init__(self, one: Rank) -> None:
        self.one, self.acl, self.graph = one, one.acl, P()
        self.main, self.side = one.stream, one.new_stream()

    def event(self, stream: Any) -> P:
        made = P()
        assert self.acl.aclrtCreateEventWithFlag(ctypes.byref(made), 1) == 0
        assert self.acl.aclrtRecordEvent(made, stream) == 0
        return made

    def begin(self) -> None:
        assert self.acl.aclmdlRICaptureBegin(self.main, 0) == 0

    def follow(self, waiting: Any, leading: Any) -> None:
        assert self.acl.aclrtStreamWaitEvent(waiting, self.event(leading)) == 0

    def end(self, stream: Any = None) -> int:
        return int(self.acl.aclmdlRICaptureEnd(stream or self.main, ctypes.byref(self.graph)))

    def copy(self, to: Memory, source: Memory, stream: Any) -> None:
        size = ctypes.c_size_t(to.like.nbytes)
        addresses = P(to.address), size, P(source.address), size
        assert self.acl.aclrtMemcpyAsync(*addresses, DEVICE_TO_DEVICE, stream) == 0


def test_what_waits_is_refused_while_a_stream_is_captured(on_ranks: Any) -> None:
    """Of any stream, unless the thread says that it means it."""

    def work(one: Rank) -> list[int]:
        capture, x, number = Capture(one), one.empty(1, np.int32), np.zeros(1, np.int32)
        size, other, acl = ctypes.c_size_t(4), one.new_stream(), one.acl
        addresses = P(number.ctypes.data), size, P(x.address), size, DEVICE_TO_HOST

        def answers() -> list[int]:
            return [
                acl.aclrtMemcpy(*addresses),
                acl.aclrtMemcpyAsync(*addresses, other),
                acl.aclrtMemset(P(x.address), size, 0, size),
            ]

        capture.begin()
        strict, mode = answers(), I32(RELAXED)
        assert acl.aclmdlRICaptureThreadExchangeMode(ctypes.byref(mode)) == 0
        relaxed = answers()
        assert acl.aclmdlRICaptureThreadExchangeMode(ctypes.byref(mode)) == 0
        assert (mode.value, capture.end()) == (RELAXED, 0)
        return strict + relaxed + answers()

    refused = [NOT_IN_CAPTURE, WAITS_IN_CAPTURE, NOT_IN_CAPTURE]
    assert on_ranks(work, 1) == [[*refused, *[0] * 6]]


def test_a_missing_join_is_found(on_ranks: Any) -> None:
    def work(one: Rank) -> list[int]:
        codes = []
        for joins in ("never", "too early", "at the end"):
            capture = Capture(one)
            x, y = one.empty(1, np.int32), one.empty(1, np.int32)
            capture.begin()
            capture.follow(capture.side, capture.main)
            if joins == "too early":
                capture.follow(capture.main, capture.side)
            capture.copy(y, x, capture.side)
            if joins == "at the end":
                capture.follow(capture.main, capture.side)
            codes.append(capture.end())
        return codes

    assert on_ranks(work, 1) == [[UNJOINED, UNJOINED, 0]]


def test_nobody_asks_for_a_captured_event(on_ranks: Any) -> None:
    def work(one: Rank) -> list[int]:
        capture, status = Capture(one), ctypes.byref(ctypes.c_int())
        capture.begin()
        event = capture.event(capture.main)
        return [
            one.acl.aclrtQueryEventStatus(event, status),
            one.acl.aclrtQueryEventWaitStatus(event, status),
            one.acl.aclrtSynchronizeEvent(event),
            capture.end(),
            one.acl.aclrtStreamWaitEvent(capture.side, event),
            one.acl.aclrtRecordEvent(event, capture.main),
            one.acl.aclrtQueryEventStatus(event, status),
        ]

    assert on_ranks(work, 1) == [[*[EVENT_CAPTURED] * 3, 0, EVENT_CAPTURED, 0, 0]]


def test_captures_do_not_mix(on_ranks: Any) -> None:
    def work(one: Rank) -> list[int]:
        first, second = Capture(one), Capture(one)
        second.main = one.new_stream()
        first.begin()
        second.begin()
        event = first.event(first.main)
        codes = [
            one.acl.aclmdlRICaptureBegin(first.main, 0),
            one.acl.aclrtStreamWaitEvent(second.main, event),
            first.end(first.side),
        ]
        first.follow(first.side, first.main)
        codes.append(first.end(first.side))
        first.follow(first.main, first.side)
        return [*codes, second.end(second.main), first.end()]

    wanted = [STREAM_CAPTURED, CONFLICT, NOT_CAPTURED, UNMATCHED, 0, 0]
    assert on_ranks(work, 1) == [wanted]


@pytest.mark.parametrize("function", ["aclopCompileAndExecute", "aclopCompileAndExecuteV2"])
def test_an_operator_that_is_run_by_its_name_is_refused(on_ranks: Any, function: str) -> None:
    """It would leave the outputs unwritten. So torch_npu runs those for which it finds no aclnn."""

    def work(one: Rank) -> tuple[int, str]:
        nothing = P()
        args = (b"Sin", 0, nothing, nothing, 0, nothing, nothing, nothing, 1, 1, None, nothing)
        return getattr(one.acl, function)(*args), one.text()

    [(code, text)] = on_ranks(work, 1)
    assert code == OPERATOR_NOT_FOUND
    assert "the operator Sin is not simulated" in text


FLOAT32, FLOAT16, BFLOAT16 = (
    np.dtype(np.float32),
    np.dtype(np.float16),
    np.dtype(ml_dtypes.bfloat16),
)
ACL = {FLOAT32: 0, FLOAT16: 1, np.dtype(np.int32): 3, BFLOAT16: 27}
ND = 2
NULL, INVALID, INNER = 161001, 161002, 561000
# 300 * 300 + 1 * 0.5 in float32, and what float16 and bfloat16 make of it.
RIGHT, HALF, BRAIN = 90000.5, float("inf"), 90112.0


class Operators:
    """The library, for one rank."""

    def __init__(self, one: Rank) -> None:
        self.one, self.api = one, ctypes.CDLL("libopapi.so")
        for name in ("aclCreateTensor", "aclCreateScalar"):
            getattr(self.api, name).restype = P
        self.api.aclCreateTensor.argtypes = [P, U64, I32, P, I64, I32, P, U64, P]

    def tensor(self, memory: Memory, shape: Any = None, strides: Any = None, offset: int = 0) -> P:
        """A view of device memory; strides are in elements."""
        storage = np.array([memory.like.size], np.int64)
        shape = np.array(memory.like.shape if shape is None else shape, np.int64)
        steps = None if strides is None else np.array(strides, np.int64)
        made = self.api.aclCreateTensor(
            shape.ctypes.data,
            shape.size,
            ACL[memory.like.dtype],
            None if steps is None else steps.ctypes.data,
            offset,
            ND,
            storage.ctypes.data,
            1,
            memory.address,
        )
        return P(made)

    def scalar(self, value: float) -> P:
        return P(self.api.aclCreateScalar(ctypes.byref(ctypes.c_float(value)), 0))

    def prepare(self, name: str, *args: Any) -> tuple[int, int, P]:
        """The first phase: its answer, the bytes of the workspace and the executor."""
        size, executor = U64(), P()
        pointers = ctypes.byref(size), ctypes.byref(executor)
        code = getattr(self.api, f"{name}GetWorkspaceSize")(*args, *pointers)
        return code, size.value, executor

    def launch(self, name: str, workspace: Any, size: int, executor: P) -> int:
        address = P(workspace.address if workspace else None)
        return int(getattr(self.api, name)(address, U64(size), executor, self.one.stream))


def small(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.random.default_rng(0).integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize(
    ("setting", "env", "said"),
    [
        ("", {}, [[HALF, BRAIN], [RIGHT, INVALID]]),
        ("right", {}, [[RIGHT, RIGHT], [RIGHT, RIGHT]]),
        ("rounded", {}, [[HALF, BRAIN], [INVALID, INVALID]]),
        ("refused", {}, [[INVALID, INVALID], [INVALID, INVALID]]),
        ("rounded", {"COLLOPS_SIM_SOC": "Ascend310P3"}, [[65504, INVALID], [INVALID, INVALID]]),
    ],
)
def test_products_of_16_bits_into_float32(
    on_ranks: Any, setting: str, env: dict[str, str], said: list[list[float]]
) -> None:
    def work(one: Rank) -> list[list[float]]:
        ops, out = Operators(one), one.empty((1, 1), FLOAT32)

        def multiplied(name: str, dtype: Any, depth: int) -> float:
            x, y = np.array([[300, 1]], dtype), np.array([[300], [0.5]], dtype)
            ins = [ops.tensor(one.device(x[:, :depth])), ops.tensor(one.device(y[:depth]))]
            code, size, executor = ops.prepare(name, *ins, ops.tensor(out), MATH_KEEP)
            if code == 0:
                assert ops.launch(name, one.empty(size, np.uint8), size, executor) == 0
                assert one.sync() == 0
            return code or float(out.read()[0, 0])

        found = []
        for name in ("aclnnMatmul", "aclnnMm"):
            found.append([multiplied(name, dtype, 2) for dtype in (FLOAT16, BFLOAT16)])
            # The vector unit makes a product alone, in the operands' type.
            alone = [multiplied(name, dtype, 1) for dtype in (FLOAT16, BFLOAT16)]
            for sum_, one_ in zip(found[-1], alone, strict=True):
                assert one_ == sum_ or (sum_ == RIGHT and one_ in (HALF, BRAIN))
        return found

    assert on_ranks(work, 1, COLLOPS_SIM_MATMUL_FLOAT_OUT=setting, **env) == [said]


def test_a_workspace_is_overwritten_and_kept_and_lower_precision_loses_bits(on_ranks: Any) -> None:
    def work(one: Rank) -> tuple[bool, int, int, float]:
        ops = Operators(one)
        x = ops.tensor(one.device(np.array([[1 + 2**-12]], np.float32)))
        y, out = ops.tensor(one.device(np.ones((1, 1), np.float32))), one.empty((1, 1), FLOAT32)
        _, size, executor = ops.prepare("aclnnMm", x, y, ops.tensor(out), MATH_DOWN)
        workspace = one.device(np.zeros(size, np.uint8))
        with one.held():
            assert ops.launch("aclnnMm", workspace, size, executor) == 0
            early = workspace.free()
        assert one.sync() == 0
        return bool(workspace.read().all()), early, workspace.free(), float(out.read()[0, 0])

    assert on_ranks(work, 1) == [(True, 100000, 0, 1.0)]


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
            ops.launch("aclnnMm", workspace, size, P()),
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
