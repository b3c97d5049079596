"""LinearParallel on every kind of simulated device: long products, graphs, and what the host
compares. Golden's cases, with all types and options, are conformance's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collops.testing import run_ranks
from tests.conformance.devices import BACKENDS_HERE, HERE
from tests.conformance.runs import Run
from tests.devices.product_ranks import LIMIT_S, PLACES, Kind, Product, check, product, run_cases

# Of which hccl has none.
LEAVES = {} if PLACES.keys() == {"hccl"} else {"sum_leaves": 2}
GRID = Kind.ALL_GATHER_LINEAR_REDUCE_SCATTER
SQUARE = (2, 2, True)
CAPTURED = {
    "two streams, own rows first": product(
        Kind.ALL_GATHER_LINEAR, [1100, 1000], k=3, n=2048, dtype="float16"
    ),
    "one stream": product(
        GRID, [2, 3, 2, 3], grid=SQUARE, scatter=[[4, 1]] * 4, dtype="bfloat16", has_residual=True
    ),
    "leaves": product(Kind.LINEAR_ALL_REDUCE, [3, 3], k=3, n=700, has_residual=True, **LEAVES),
}


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("name", CAPTURED)
def test_a_captured_product_is_replayed(device: Any, where: str, name: str) -> None:
    case = CAPTURED[name]

    def work(rank: int) -> list[Any]:
        stream, found = device.stream(), []
        call = Product(device, case, rank, **PLACES[where].fields)
        call.run(stream)  # connects
        with device.captured(stream) as graph:
            call.execute(stream)
            call.execute(stream)
        for seed in (1, 2):
            call.write(seed)
            graph.replay(stream)
            found.append(call.values(stream))
        graph.destroy()
        return found

    found = PLACES[where].run(device, case.rank_size, work)
    for seed in (1, 2):
        check(case, [own[seed - 1] for own in found], seed)


@pytest.mark.parametrize("where", PLACES)
def test_chunks_and_strips(device: Any, where: str) -> None:
    """Own rows first, two gathers of 8 MiB of a rank, strips of 16 MiB, and all of it on a grid."""
    cases = [
        product(Kind.ALL_GATHER_LINEAR, [1 << 21, 1 << 20], k=2, n=2, keep_intermediate=True),
        product(Kind.LINEAR_REDUCE_SCATTER, [8300] * 2, k=3, n=600, dtype="float16",
                scatter=[[8000, 300]] * 2, has_residual=True),
        product(Kind.LINEAR_ALL_REDUCE, [8300] * 2, k=2, n=600, has_residual=True,
                trans_weight=True, **LEAVES),
        product(GRID, [4200, 4100], k=3, n=600, dtype="bfloat16", grid=(2, 1, True)),
    ]  # fmt: skip
    run_cases(device, cases, PLACES[where])


@pytest.mark.parametrize("backend", BACKENDS_HERE)
def test_scales_of_gathered_rows(backend: str) -> None:
    """Which only the plain level has; k and n are no multiples of anything."""
    run = Run("plain", 2, HERE, backend=backend)
    draw = np.random.default_rng(5)
    xs = [draw.integers(-128, 128, (3 + r, 37)).astype(np.int8) for r in range(2)]
    ws = [draw.integers(-128, 128, (37, 21)).astype(np.int8) for _ in range(2)]
    tokens = [draw.random(3 + r).astype(np.float32) for r in range(2)]
    scales = [draw.random(21).astype(np.float32) for _ in range(2)]

    def work(rank: int) -> Any:
        comm = run.join(rank)
        own = (run.place(comm, each[rank]) for each in (xs, ws, scales, tokens))
        x, w, scale, x_scale = own
        words = {"scale": scale, "x_scale": x_scale, "sizes": [3, 4]}
        return run.values(comm.all_gather_matmul(x, w, **words))

    every = np.concatenate(xs).astype(np.int32)
    got = run_ranks(work, 2, timeout=LIMIT_S, env=run.environment)
    for out, w, scale in zip(got, ws, scales, strict=True):
        sums = (every @ w.astype(np.int32)).astype(np.float32)
        assert np.array_equal(out, sums * scale * np.concatenate(tokens)[:, None])


@pytest.mark.parametrize("where", [name for name in PLACES if "thread" not in name])
def test_grids_that_are_compared_on_the_host_too(device: Any, where: str) -> None:
    """The first one moves nothing."""
    cases = [
        product(GRID, [0] * 4, grid=SQUARE, scatter=[[0, 0]] * 4),
        product(GRID, [1, 4, 1, 4], grid=SQUARE, scatter=[[5, 0]] * 4, dtype="float16",
                has_residual=True),
        product(GRID, [1, 1, 4, 4], grid=(2, 2, False), scatter=[[5, 0]] * 4, dtype="bfloat16"),
    ]  # fmt: skip
    run_cases(device, cases, PLACES[where], COLLOPS_CHECK="1", COLLOPS_SIM_DELAY_US="1000")
