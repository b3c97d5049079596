"""Rules of cuBLASLt that the simulated one holds its callers to; conformance has its products."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.gpu.simulated.simulated_driver import I32, SIZE, U64, Driver, P
from tests.gpu.simulated.waiting_kernel import release, waiting

I64, F32 = ctypes.c_int64, ctypes.c_float
FLOAT32, FLOAT16, BFLOAT16 = 0, 2, 14
COMPUTE_32F = 68
MOST_WORKSPACE, REDUCTIONS, ALIGNMENT_A = 1, 3, 5
IN_COMPUTE_TYPE, IN_OUTPUT_TYPE = 2, 4
WORKSPACE = 65536
NOT_INITIALIZED, INVALID_VALUE = 1, 7
M, N, K = 24, 40, 16


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", SIZE),
        ("state", ctypes.c_int),
        ("waves", F32),
        ("reserved", ctypes.c_int * 4),
    )


class Blas:
    """cuBLASLt, with a handle of the current context."""

    def __init__(self, cuda: Driver) -> None:
        self.cuda, self.blas, self.handle = cuda, ctypes.CDLL("libcublasLt.so.13"), P()
        assert self.blas.cublasLtCreate(ctypes.byref(self.handle)) == 0

    def make(self, name: str, *args: Any) -> P:
        made = P()
        assert getattr(self.blas, name)(ctypes.byref(made), *args) == 0
        return made

    def layout(self, kind: int, rows: int, columns: int, stride: int = 0) -> P:
        """Of a matrix column by column."""
        sizes = (U64(rows), U64(columns), I64(stride or rows))
        return self.make("cublasLtMatrixLayoutCreate", I32(kind), *sizes)

    def plan(self) -> P:
        return self.make("cublasLtMatmulDescCreate", I32(COMPUTE_32F), I32(FLOAT32))

    def algorithms(
        self,
        plan: P,
        layouts: list[P],
        reductions: int = 7,
    ) -> list[Heuristic]:
        """What the heuristic finds."""
        preference = self.make("cublasLtMatmulPreferenceCreate")
        wishes: list[tuple[int, Any]] = [(MOST_WORKSPACE, U64(WORKSPACE))]
        wishes += [(REDUCTIONS, ctypes.c_uint32(reductions))]
        wishes += [(ALIGNMENT_A + i, ctypes.c_uint32(256)) for i in range(4)]
        for number, value in wishes:
            args = (preference, I32(number), ctypes.byref(value), SIZE(ctypes.sizeof(value)))
            assert self.blas.cublasLtMatmulPreferenceSetAttribute(*args) == 0
        found, count = (Heuristic * 4)(), ctypes.c_int()
        get = self.blas.cublasLtMatmulAlgoGetHeuristic
        code = get(self.handle, plan, *layouts, preference, 4, found, ctypes.byref(count))
        assert code == 0, self.cuda.text()
        return list(found[: count.value])

    def matmul(
        self,
        plan: P,
        layouts: list[P],
        data: list[int],
        *,
        algorithm: Heuristic | None = None,
        workspace: int = 0,
        size: int = 0,
        stream: int = 0,
    ) -> int:
        a, b, c, d = layouts
        chosen = None if algorithm is None else ctypes.byref(algorithm)
        ends = [P(address) for address in data]
        alpha, beta = ctypes.byref(F32(1.0)), ctypes.byref(F32(0.0))
        pairs = (alpha, ends[0], a, ends[1], b, beta, ends[2], c, ends[3], d)
        rest = (chosen, P(workspace), SIZE(size), P(stream))
        return int(self.blas.cublasLtMatmul(self.handle, plan, *pairs, *rest))


def test_an_algorithm_that_rounds_parts_of_sums_is_given_unless_excluded(on_gpu: Any) -> None:
    random = np.random.default_rng(8)
    a, b = (random.standard_normal((64, 64)).astype(ml_dtypes.bfloat16) for _ in range(2))

    def work(cuda: Driver) -> Any:
        blas, found = Blas(cuda), []
        plan, layouts = blas.plan(), [blas.layout(BFLOAT16, 64, 64)] * 4
        bits = [matrix.ravel(order="F").view(np.uint16) for matrix in (a, b)]
        data, out = [cuda.put(one) for one in bits], cuda.alloc(2 * 64 * 64)
        workspace = cuda.alloc(WORKSPACE)
        for reductions in (IN_OUTPUT_TYPE, IN_COMPUTE_TYPE, 0):
            options = blas.algorithms(plan, layouts, reductions)
            over = {"algorithm": options[0], "workspace": workspace, "size": WORKSPACE}
            assert blas.matmul(plan, layouts, [*data, out, out], **over) == 0
            raw = cuda.read(out, 64 * 64, np.uint16)
            found.append((len(options), raw.view(ml_dtypes.bfloat16).astype(np.float32)))
        return found

    exactly = (a.astype(np.float64) @ b.astype(np.float64)).ravel(order="F")
    counts, results = zip(*on_gpu(work), strict=True)
    errors = [float(np.abs(result - exactly).mean()) for result in results]
    assert counts == (3, 3, 2)
    assert errors[0] > 1.05 * errors[1]
    assert errors[1] < 1.05 * errors[2]


class Case:
    """A right call, for one mistake each."""

    def __init__(self, cuda: Driver) -> None:
        self.cuda, self.blas = cuda, Blas(cuda)
        self.plan = self.blas.plan()
        shapes = ((M, K), (K, N), (M, N), (M, N))
        self.layouts = [self.blas.layout(FLOAT32, *shape) for shape in shapes]
        self.data = [cuda.alloc(4 * M * K), cuda.alloc(4 * K * N), *[cuda.alloc(4 * M * N)] * 2]
        self.workspace = cuda.alloc(WORKSPACE)
        # One that splits the inner sum, one of clusters of blocks, and one of plain blocks.
        self.algorithms = self.blas.algorithms(self.plan, self.layouts)

    def call(self, **over: Any) -> int:
        right = {"algorithm": self.algorithms[0], "workspace": self.workspace, "size": WORKSPACE}
        return self.blas.matmul(self.plan, self.layouts, self.data, **{**right, **over})

    def with_end(self, index: int, address: int) -> int:
        self.data[index] = address
        return self.call()

    def with_layout(self, index: int, *args: int) -> int:
        self.layouts[index] = self.blas.layout(*args)
        return self.call()


HOST = np.zeros(1 << 20, np.uint8)


def on_other(case: Case) -> int:
    with case.cuda.on(5):
        return case.call(stream=case.cuda.stream())


WRONG: dict[str, tuple[Callable[[Case], int], int]] = {
    "nothing": (lambda case: case.call(), 0),
    "host memory": (lambda case: case.with_end(0, HOST.ctypes.data), INVALID_VALUE),
    "a matrix too short": (lambda case: case.with_end(1, case.data[1] + 16), INVALID_VALUE),
    "not aligned": (lambda case: case.with_end(0, case.cuda.alloc(9999) + 4), INVALID_VALUE),
    "workspace on the host": (lambda case: case.call(workspace=HOST.ctypes.data), INVALID_VALUE),
    "workspace too small": (lambda case: case.call(size=1024), INVALID_VALUE),
    "rows for columns": (lambda case: case.with_layout(3, 0, N, M), INVALID_VALUE),
    "a short stride": (lambda case: case.with_layout(0, 0, M, K, M - 8), INVALID_VALUE),
    "another type": (lambda case: case.with_layout(0, FLOAT16, M, K), INVALID_VALUE),
    "a stream of another device": (on_other, INVALID_VALUE),
    "a made-up algorithm": (lambda case: case.call(algorithm=Heuristic()), INVALID_VALUE),
}


def test_wrong_calls_are_refused(on_gpu: Any) -> None:
    def work(cuda: Driver) -> dict[str, int]:
        return {name: call(Case(cuda)) for name, (call, _) in WRONG.items()}

    assert on_gpu(work) == {name: code for name, (_, code) in WRONG.items()}


def test_what_a_product_uses_is_not_freed_before(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        case, stream = Case(cuda), cuda.stream()
        with cuda.held(stream):
            assert case.call(stream=stream) == 0
            ends = [*case.data[:3], case.workspace]
            codes = [cuda.code("cuMemFree_v2", U64(address)) for address in ends]
        cuda.sync(stream)
        return codes, cuda.mistakes()

    assert on_gpu(work) == ([1, 1, 1, 1], 4)


def test_no_context_and_no_handle(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        case, made = Case(cuda), P()
        case.blas.handle = made
        without = case.call()
        cuda.call("cuCtxSetCurrent", P())
        return without, case.blas.blas.cublasLtCreate(ctypes.byref(made))

    assert on_gpu(work) == (NOT_INITIALIZED, NOT_INITIALIZED)


def beside(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """A thread of its own that works on the GPU, and what it has found."""
    found: list[Any] = []

    def run() -> None:
        Driver()
        found.append(work())

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def test_the_first_use_of_an_algorithm_waits_for_the_gpu_and_keeps_others_out(on_gpu: Any) -> None:
    """As a module that is loaded. Later uses wait for nothing."""

    def work(cuda: Driver) -> Any:
        case, stream, release = Case(cuda), cuda.stream(), cuda.stream()
        plain = case.algorithms[-1]
        waits = [[], []]  # whether the first product, and a call beside it, have come back
        for turn in range(2):
            _, signal = waiting(cuda)
            with cuda.held(release):
                assert cuda.fill(signal, 1, 4, release) == 0
                first, code = beside(lambda: case.call(algorithm=plain, stream=stream))
                first.join(0.2)
                second, _ = beside(lambda: cuda.event())
                second.join(0.2)
                waits[turn] = [first.is_alive(), second.is_alive()]
            first.join()
            second.join()
            assert code == [0]
            while cuda.waiting_kernels() > 0:
                time.sleep(0.002)
        return waits, cuda.mistakes()

    assert on_gpu(work) == ([[True, True], [False, False]], 0)


@pytest.mark.parametrize("number", range(3))
def test_blocks_that_need_each_other_begin_only_where_no_kernel_waits(
    on_gpu: Any, number: int
) -> None:
    def work(cuda: Driver) -> Any:
        case, stream = Case(cuda), cuda.stream()
        chosen = case.algorithms[number]
        assert case.call(algorithm=chosen, stream=stream) == 0
        cuda.sync(stream)
        blocked, signal = waiting(cuda)
        assert case.call(algorithm=chosen, stream=stream) == 0
        time.sleep(0.2)
        ended = cuda.code("cuStreamQuery", P(stream)) == 0
        release(cuda, blocked, signal)
        cuda.sync(stream)
        return ended, cuda.mistakes()

    assert on_gpu(work) == (number == 2, 0)
