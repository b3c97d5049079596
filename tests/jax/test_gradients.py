"""Gradients of the calls: those of the sum of all ranks' losses, which one process can compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collops.testing import run_ranks
from tests.jax.test_calls import begin, rows_of

SIZES = [2, 0, 3]
TABLE = [[1, 0, 1], [2, 0, 0], [1, 1, 1]]


def weighed(jax: Any, rank: int, y: Any) -> Any:
    """A loss of a rank: of squares, with weights that differ in every rank and position."""
    weights = jax.numpy.arange(1.0, y.size + 1).reshape(y.shape) * (rank + 2) / 7
    return (weights * y**2).sum()


def compare(rank: int) -> None:
    jax, cjax, comm = begin()
    np_ = jax.numpy
    begins = np.cumsum([0, *SIZES])
    ranks = range(comm.size)

    def check(ours: Any, whole: Any, xs: list[Any]) -> None:
        """`whole`: the results of all ranks, of all ranks' x."""
        loss = lambda x: weighed(jax, rank, ours(x))  # noqa: E731
        total = lambda xs: sum(weighed(jax, r, y) for r, y in enumerate(whole(xs)))  # noqa: E731
        want = jax.grad(total)(xs)[rank]
        for gradient in (jax.grad(loss), jax.jit(jax.grad(loss))):
            np.testing.assert_allclose(gradient(xs[rank]), want, rtol=1e-5)
        # And once more: of the gradient's own weighed squares.
        twice = jax.jit(jax.grad(lambda x: weighed(jax, rank, jax.grad(loss)(x))))
        want = jax.grad(
            lambda xs: sum(weighed(jax, r, one) for r, one in enumerate(jax.grad(total)(xs)))
        )(xs)[rank]
        np.testing.assert_allclose(twice(xs[rank]), want, rtol=1e-5)

    blocks = [np_.asarray(rows_of(r, SIZES[r])) for r in ranks]
    alike = [np_.asarray(rows_of(r, sum(SIZES))) for r in ranks]
    check(
        lambda x: cjax.all_gatherv(x, SIZES),
        lambda xs: [np_.concatenate(xs) for _ in ranks],
        blocks,
    )
    for op, divisor in (("sum", 1), ("avg", comm.size)):
        check(
            lambda x, op=op: cjax.reduce_scatterv(x, SIZES, op=op),
            lambda xs, d=divisor: [sum(xs)[begins[r] : begins[r + 1]] / d for r in ranks],
            alike,
        )
        check(
            lambda x, op=op: cjax.all_reduce(x, op),
            lambda xs, d=divisor: [sum(xs) / d for _ in ranks],
            alike,
        )
    sent = [np_.asarray(rows_of(r, sum(TABLE[r]))) for r in ranks]

    def exchanged(xs: Any) -> list[Any]:
        parts = [np_.split(x, np.cumsum(TABLE[r])[:-1]) for r, x in enumerate(xs)]
        return [np_.concatenate([of[r] for of in parts]) for r in ranks]

    receives = [TABLE[r][rank] for r in ranks]
    check(lambda x: cjax.all_to_allv(x, TABLE[rank], receives), exchanged, sent)


def test_gradients_are_those_of_the_sum_of_all_losses() -> None:
    run_ranks(compare, 3)


def two_layers(rank: int) -> list[Any]:
    """Data-parallel training with uneven batches: each rank has rows of its own."""
    jax, cjax, comm = begin()
    sizes = [2, 5]
    x, y = rows_of(rank, sizes[rank], row=(3,)) / 20, rows_of(rank, sizes[rank], row=(1,)) / 20
    weights = jax.numpy.asarray(rows_of(0, 3, row=(1,)) / 30)  # the same on both ranks

    @jax.jit
    def step(weights: Any) -> Any:
        loss = lambda w: ((x @ w - y) ** 2).sum() / sum(sizes)  # noqa: E731
        return weights - 0.1 * cjax.all_reduce(jax.grad(loss)(weights), comm=comm)

    for _ in range(10):
        weights = step(weights)
    return np.asarray(weights).tolist()


def test_training_with_uneven_batches_is_that_of_one_process() -> None:
    x = np.concatenate([rows_of(r, n, row=(3,)) for r, n in enumerate([2, 5])]) / 20
    y = np.concatenate([rows_of(r, n, row=(1,)) for r, n in enumerate([2, 5])]) / 20
    weights = rows_of(0, 3, row=(1,)) / 30
    for _ in range(10):
        weights = weights - 0.1 * 2 * x.T @ (x @ weights - y) / 7
    first, second = run_ranks(two_layers, 2)
    assert first == second
    np.testing.assert_allclose(first, weights, rtol=1e-5)


def without_gradient(rank: int, op: str, name: str) -> None:
    jax, cjax, _ = begin()
    call = getattr(cjax, name)
    jax.grad(lambda x: call(x, op=op).sum())(rows_of(rank, 2))


@pytest.mark.parametrize("name", ["all_reduce", "reduce_scatterv"])
@pytest.mark.parametrize("op", ["max", "prod"])
def test_a_reduction_without_a_gradient(name: str, op: str) -> None:
    with pytest.raises(Exception, match=f'{name}: op "{op}" has no gradient; "sum" and "avg"'):
        run_ranks(without_gradient, 2, op, name)
