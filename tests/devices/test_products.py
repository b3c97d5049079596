"""LinearParallel on every kind of simulated device: long products, graphs, and what the host
compares. Golden's cases, with all types and options, are conformance's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devices.product_ranks import PLACES, Kind, Product, check, product, run_cases

GRID = Kind.ALL_GATHER_LINEAR_REDUCE_SCATTER
SQUARE = (2, 2, True)
CAPTURED = {
    "two streams, own rows first": product(
        Kind.ALL_GATHER_LINEAR, [1100, 1000], k=3, n=2048, dtype="float16"
    ),
    "one stream": product(
        GRID, [2, 3, 2, 3], grid=SQUARE, scatter=[[4, 1]] * 4, dtype="bfloat16", has_residual=True
    ),
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
                trans_weight=True),
        product(GRID, [4200, 4100], k=3, n=600, dtype="bfloat16", grid=(2, 1, True)),
    ]  # fmt: skip
    run_cases(device, cases, PLACES[where])


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
