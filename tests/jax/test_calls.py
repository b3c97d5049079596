"""The calls of collops.jax against numpy, inside and outside of jit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collops.testing import run_ranks
from patience import patience

SIZES = {1: [3], 2: [3, 5], 3: [2, 0, 7]}
DTYPES = ["float32", "bfloat16", "float16", "int32", "uint8", "bool", "complex64"]
WIDE = ["float64", "int64", "complex128"]


def rows_of(rank: int, rows: int, dtype: Any = "float32", row: tuple[int, ...] = (2,)) -> Any:
    """Rows that differ in every rank and position."""
    count = rows * int(np.prod(row))
    return (np.arange(count).reshape(rows, *row) % 11 + 13 * rank + 1).astype(dtype)


def begin(x64: bool = False) -> tuple[Any, Any, Any]:
    """jax, collops.jax and the communicator of this rank."""
    import jax

    jax.config.update("jax_enable_x64", x64)
    from collops import jax as cjax

    return jax, cjax, cjax.init(timeout_s=patience(30))


def gathers(rank: int, size: int, dtypes: list[str], x64: bool) -> None:
    jax, cjax, comm = begin(x64)
    sizes = SIZES[size]
    for dtype in map(jax.numpy.dtype, dtypes):
        blocks = [rows_of(r, rows, dtype) for r, rows in enumerate(sizes)]
        want = np.concatenate(blocks)
        x = jax.numpy.asarray(blocks[rank])
        assert x.dtype == dtype
        for gather in (cjax.all_gatherv, jax.jit(cjax.all_gatherv, static_argnums=1)):
            got = gather(x, tuple(sizes))
            assert got.dtype == dtype
            np.testing.assert_array_equal(np.asarray(got), want)
    x = rows_of(rank, sizes[rank], row=(4, 2))
    got = jax.jit(lambda x: cjax.all_gatherv(x, sizes, dim=-2, comm=comm))(np.swapaxes(x, 0, 1))
    blocks = [rows_of(r, rows, row=(4, 2)) for r, rows in enumerate(sizes)]
    np.testing.assert_array_equal(got, np.swapaxes(np.concatenate(blocks), 0, 1))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_gatherv(size: int) -> None:
    run_ranks(gathers, size, size, DTYPES, False)


def test_all_gatherv_of_wide_elements() -> None:
    run_ranks(gathers, 2, 2, WIDE, True)


def reductions(rank: int, size: int) -> None:
    jax, cjax, comm = begin()
    sizes = SIZES[size]
    begins = np.cumsum([0, *sizes])
    for dtype in map(jax.numpy.dtype, ["float32", "bfloat16", "int32"]):
        xs = [rows_of(r, sum(sizes), dtype) for r in range(size)]
        wide = [x.astype(np.float64) for x in xs]
        for op, reduce in (("sum", np.sum), ("max", np.max), ("min", np.min)):
            want = reduce(wide, axis=0)
            all_reduce = jax.jit(lambda x, op=op: cjax.all_reduce(x, op, comm=comm))
            scatter = jax.jit(lambda x, op=op: cjax.reduce_scatterv(x, sizes, op=op, comm=comm))
            total, own = all_reduce(xs[rank]), scatter(xs[rank])
            assert total.dtype == own.dtype == dtype
            np.testing.assert_array_equal(np.asarray(total, np.float64), want)
            part = want[begins[rank] : begins[rank + 1]]
            np.testing.assert_array_equal(np.asarray(own, np.float64), part)
    x = rows_of(rank, 7)
    even = jax.jit(cjax.reduce_scatterv)(x)
    total = np.sum([rows_of(r, 7) for r in range(size)], axis=0)
    np.testing.assert_array_equal(even, np.array_split(total, size)[rank])
    across = jax.jit(lambda x: cjax.reduce_scatterv(x, sizes, dim=1))
    x = np.swapaxes(rows_of(rank, sum(sizes)), 0, 1)
    total = np.sum([rows_of(r, sum(sizes)) for r in range(size)], axis=0)
    own = np.swapaxes(total[begins[rank] : begins[rank + 1]], 0, 1)
    np.testing.assert_array_equal(across(x), own)
    assert float(jax.jit(cjax.all_reduce)(np.float32(rank + 1))) == sum(range(size + 1))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_reductions(size: int) -> None:
    run_ranks(reductions, size, size)


def exchanges(rank: int) -> None:
    jax, cjax, _ = begin()
    table = [[1, 0, 2], [4, 3, 0], [0, 0, 5]]  # rows from each rank to each
    xs = [rows_of(r, sum(sends)) for r, sends in enumerate(table)]
    parts = [np.split(x, np.cumsum(sends)[:-1]) for x, sends in zip(xs, table, strict=True)]
    receives = [sends[rank] for sends in table]
    got = jax.jit(lambda x: cjax.all_to_allv(x, table[rank], receives))(xs[rank])
    np.testing.assert_array_equal(got, np.concatenate([of[rank] for of in parts]))


def test_all_to_allv() -> None:
    run_ranks(exchanges, 3)


def donated(rank: int) -> None:
    jax, cjax, _ = begin()
    doubled = jax.jit(lambda x: cjax.all_reduce(2 * x), donate_argnums=0)
    x = jax.numpy.asarray(rows_of(rank, 4))
    want = 2 * (rows_of(0, 4) + rows_of(1, 4))
    np.testing.assert_array_equal(doubled(x), want)
    assert x.is_deleted()
    y = jax.numpy.asarray(rows_of(rank, 4))
    both = jax.jit(lambda y: (y, cjax.all_reduce(y), y + 1))(y)
    np.testing.assert_array_equal(both[0], rows_of(rank, 4))
    np.testing.assert_array_equal(both[1], want / 2)


def test_a_donated_argument_and_one_that_is_used_again() -> None:
    run_ranks(donated, 2)


def unused(rank: int) -> int:
    """A call whose result nobody reads is made: the other rank reads its own."""
    jax, cjax, _ = begin()

    @jax.jit
    def work(x: Any) -> Any:
        gathered = cjax.all_gatherv(x, [2, 2])
        total = cjax.all_reduce(x)
        return gathered.sum() if rank == 0 else total.sum()

    return int(work(np.full(2, rank + 1, np.int32)))


def test_a_result_that_is_not_used() -> None:
    assert run_ranks(unused, 2) == [6, 6]


def in_control_flow(rank: int) -> None:
    jax, cjax, comm = begin()
    lax = jax.lax
    one = rows_of(rank, 1)[0]
    want = one
    for step in range(5):
        want = (rows_of(0, 1)[0] + rows_of(1, 1)[0]) / 2 + step if step == 0 else want + step
    mean = lambda x: cjax.all_reduce(x, "avg")  # noqa: E731

    def scanned(x: Any) -> Any:
        return lax.scan(lambda y, step: (mean(y) + step, None), x, np.arange(5.0, dtype="f4"))[0]

    np.testing.assert_array_equal(jax.jit(scanned)(one), want)

    def looped(x: Any) -> Any:
        step = lambda state: (state[0] + 1, mean(state[1]) + state[0])  # noqa: E731
        return lax.while_loop(lambda state: state[0] < 5, step, (np.float32(0), x))[1]

    np.testing.assert_array_equal(jax.jit(looped)(one), want)
    until = lambda x: lax.while_loop(lambda y: mean(y).sum() < 50, lambda y: y + 1, x)  # noqa: E731
    np.testing.assert_array_equal(jax.jit(until)(one), one + 17)
    chosen = jax.jit(lambda x, take: lax.cond(take, mean, lambda x: -x, x))
    np.testing.assert_array_equal(chosen(one, True), want - 10)
    np.testing.assert_array_equal(chosen(one, False), -one)
    inner = jax.jit(mean)
    np.testing.assert_array_equal(jax.jit(lambda x: inner(x) + mean(x))(one), 2 * (want - 10))
    kept = jax.checkpoint(lambda x: jax.numpy.sin(mean(x)).sum())
    again = jax.jit(jax.grad(kept))(one)
    np.testing.assert_allclose(again, np.cos(want - 10), rtol=1e-5)
    assert comm.size == 2


def test_in_loops_branches_and_functions() -> None:
    run_ranks(in_control_flow, 2)


def independent_calls(rank: int, lowers: Callable[[], None] | None = None) -> list[Any]:
    """Two calls of which neither needs the other: on each rank another one is ready first."""
    jax, cjax, comm = begin()
    if lowers is not None:
        lowers()
        comm.timeout_s = 10

    @jax.jit
    def work(a: Any, b: Any, weight: Any) -> Any:
        late = weight
        for _ in range(6):
            late = jax.numpy.tanh(late @ weight)
        zero = late[0, 0] * 0
        first = cjax.all_gatherv(a + zero if rank == 0 else a, [1, 2])
        second = cjax.all_reduce(b if rank == 0 else b + zero)
        return first, second

    a, b = rows_of(rank, rank + 1, row=()), rows_of(rank, 4, row=())
    for _ in range(20):
        first, second = work(a, b, np.eye(500, dtype="f4"))
    return [np.asarray(first).tolist(), np.asarray(second).tolist()]


def without_token() -> None:
    """Lowers calls with a new token for each, as if JAX handed none from call to call."""
    from types import SimpleNamespace

    from jax.interpreters import mlir

    from collops.jax import primitive
    from collops.jax.private import hlo

    lower = primitive._lower

    def apart(context: Any, *arrays: Any, **params: Any) -> Any:
        alone = SimpleNamespace(
            avals_in=context.avals_in,
            avals_out=context.avals_out,
            tokens_in=SimpleNamespace(get=lambda effect: hlo.create_token()),
            set_tokens_out=lambda tokens: None,
        )
        context.set_tokens_out(context.tokens_in)
        return lower(alone, *arrays, **params)

    mlir.register_lowering(primitive._call, apart, platform="cpu")


def test_independent_calls_keep_their_order() -> None:
    first = np.concatenate([rows_of(0, 1, row=()), rows_of(1, 2, row=())]).tolist()
    second = (rows_of(0, 4, row=()) + rows_of(1, 4, row=())).tolist()
    assert run_ranks(independent_calls, 2) == [[first, second]] * 2


def test_without_the_token_they_do_not() -> None:
    with pytest.raises(Exception, match="the call is all_reduce on rank 0"):
        run_ranks(independent_calls, 2, without_token)


def programs(rank: int) -> list[float]:
    """Programs that are under way at once: the order is that in which they were called."""
    jax, cjax, _ = begin()
    gather = jax.jit(lambda x: cjax.all_gatherv(x, [256, 256]).sum())
    total = jax.jit(lambda x: cjax.all_reduce(x).sum())
    x = np.full(256, rank + 1, np.float32)
    results = [call(x) for _ in range(50) for call in (gather, total)]
    return [float(one) for one in results]


def test_programs_keep_their_order() -> None:
    assert run_ranks(programs, 2) == [[768.0] * 100] * 2
