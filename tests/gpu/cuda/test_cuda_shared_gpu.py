"""LinearParallel where ranks are threads on one GPU: nothing there waits for what cannot begin."""

from __future__ import annotations

import ctypes
import logging
import re
import threading
import time
from typing import Any

import pytest

import collops
from patience import patience
from tests.devices.product_ranks import CUDA, LIMIT_S, Kind, Product, check, product
from tests.gpu.gpu_ranks import Gather

ON_ONE = CUDA["threads on one GPU"]
SCATTERED = product(Kind.LINEAR_REDUCE_SCATTER, [6, 6], k=8, n=16, scatter=[[2, 4]] * 2)
# On GPUs of their own ranks gather on a second stream, while their own rows are multiplied.
OVERLAPPING = product(Kind.ALL_GATHER_LINEAR, [1100, 1000], k=3, n=2048, dtype="float16")


def until_one_waits(gpu: Any) -> None:
    while gpu.cuda.waiting_kernels() == 0:
        time.sleep(0.002)


def test_the_first_run_may_not_be_captured(gpu: Any) -> None:
    """The group has met, and can go on."""

    def work(rank: int) -> tuple[str, list[Any]]:
        stream = gpu.stream()
        other = Gather(gpu, rank, [3, 2], "float32", **ON_ONE.fields)
        other.execute(stream)
        call = Product(gpu, SCATTERED, rank, **ON_ONE.fields)
        with gpu.captured(stream) as graph, pytest.raises(collops.Error) as error:
            call.execute(stream)
        graph.destroy()
        return str(error.value), call.run(stream)

    found = ON_ONE.run(gpu, 2, work)
    for text, _ in found:
        assert "run it once before capturing" in text
    check(SCATTERED, [outputs for _, outputs in found])


def test_a_later_call_loads_nothing_at_any_address(gpu: Any) -> None:
    """Its product would wait for the kernel of the rank that is ahead, and that one for it."""

    def work(rank: int) -> list[Any]:
        stream = gpu.stream()
        call = Product(gpu, SCATTERED, rank, **ON_ONE.fields)
        call.run(stream)
        call.write(0)
        if rank == 0:
            call.inputs[0] = gpu.tensor(call.arrays(0)[0], SCATTERED.dtype, shift=1)
            until_one_waits(gpu)
        call.execute(stream)
        return call.values(stream)

    check(SCATTERED, ON_ONE.run(gpu, 2, work))


def test_a_product_alone_gets_its_place_beside_a_gather_that_waits(gpu: Any) -> None:
    alone = product(Kind.PURE_LINEAR, [5, 6], k=8, n=16)
    loaded = threading.Barrier(2)

    def work(rank: int) -> list[Any]:
        stream, beside = gpu.stream(), gpu.stream()
        other = Gather(gpu, rank, [3, 2], "float32", **ON_ONE.fields)
        call = Product(gpu, alone, rank, **ON_ONE.fields)
        call.run(stream)
        # Until both are loaded: that waits for a gather, and a gather for the rank that loads.
        loaded.wait(LIMIT_S)
        other.execute(stream)
        other.check(0, stream)
        if rank == 1:
            other.execute(stream)
        else:
            until_one_waits(gpu)
            call.write(0)
            call.run(beside)
            other.execute(stream)
        other.check(0, stream)
        return call.values(beside)

    check(alone, ON_ONE.run(gpu, 2, work))


def test_a_product_alone_is_loaded_when_no_gather_waits(gpu: Any) -> None:
    """Else the rank for which the gather waits could not launch its part any more."""
    alone = product(Kind.PURE_LINEAR, [3, 4], k=8, n=16)

    def work(rank: int) -> list[Any]:
        stream, beside = gpu.stream(), gpu.stream()
        other = Gather(gpu, rank, [3, 2], "float32", **ON_ONE.fields)
        call = Product(gpu, alone, rank, **ON_ONE.fields)
        other.execute(stream)
        other.check(0, stream)
        if rank == 0:
            until_one_waits(gpu)
            time.sleep(0.2)
        other.execute(stream)
        outputs = call.run(beside)
        other.check(0, stream)
        return outputs

    check(alone, ON_ONE.run(gpu, 2, work))


@pytest.mark.parametrize("where", CUDA)
def test_products_are_chosen_for_the_multiprocessors_that_collectives_leave(
    gpu: Any, where: str
) -> None:
    """Where both run at once: 4 blocks of a gather leave 4 of 8. On one GPU none are beside it."""

    def work(rank: int) -> tuple[list[int], list[Any]]:
        call = Product(gpu, OVERLAPPING, rank, **CUDA[where].fields)
        outputs = call.run(gpu.stream())
        products_for = ctypes.CDLL("libcublasLt.so.13").SimProductsFor
        return [int(products_for(count)) for count in range(9)], outputs

    found = CUDA[where].run(gpu, 2, work)
    check(OVERLAPPING, [outputs for _, outputs in found])
    for counts, _ in found:
        used = {count for count, products in enumerate(counts) if products > 0}
        assert used == ({0} if CUDA[where].on_one else {4})


# Of sizes with which ranks on GPUs of their own would overlap: the gather, the sum, or both.
MANY = {
    "a gather": product(Kind.ALL_GATHER_LINEAR, [1100] * 3, k=2, n=2048, dtype="float16"),
    "a sum": product(
        Kind.LINEAR_REDUCE_SCATTER, [8800] * 8, k=2, n=768, dtype="float16",
        scatter=[[1100] * 8] * 8,
    ),
    "both": product(
        Kind.ALL_GATHER_LINEAR_REDUCE_SCATTER, [4200, 4100] * 2, k=2, n=600, grid=(2, 2, True),
        scatter=[[8000, 300]] * 4, dtype="float16",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MANY)
def test_replays_need_no_more_queues_than_ranks(gpu: Any, name: str) -> None:
    """One for each rank's stream, and one for the default stream, on which the test writes."""
    case = MANY[name]

    def work(rank: int) -> list[Any]:
        stream = gpu.stream()
        call = Product(gpu, case, rank, **ON_ONE.fields)
        call.run(stream)
        with gpu.captured(stream) as graph:
            call.execute(stream)
            call.execute(stream)
        call.write(1)
        graph.replay(stream)
        outputs = call.values(stream)
        graph.destroy()
        return outputs

    queues = str(case.rank_size + 1)
    check(case, ON_ONE.run(gpu, case.rank_size, work, CUDA_DEVICE_MAX_CONNECTIONS=queues), 1)


WAYS = {
    "fit": (4, "", []),
    "too many": (5, "", ["5 8"]),
    "set": (5, "32", []),
    "few": (2, "3", ["2 3"]),
}
WARNING = re.compile(r"(\d+) ranks of this process share GPU-[-0-9a-f]+, whose (\d+) queues")


@pytest.mark.parametrize("way", WAYS)
def test_more_streams_than_queues_are_warned_of_once(gpu: Any, way: str) -> None:
    ranks, queues, expected = WAYS[way]
    lines: list[str] = []

    def work(rank: int) -> list[str]:
        if rank == 0:
            logged = logging.Handler()
            logged.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
            logging.getLogger("collops").addHandler(logged)
        for name in ("first", "second"):
            fields = ON_ONE.fields | {"comm_domain": name, "timeout_s": patience(60)}
            collops.init(rank, ranks, **fields).close()
        return lines

    env = {"CUDA_DEVICE_MAX_CONNECTIONS": queues} if queues else {}
    said = ON_ONE.run(gpu, ranks, work, **env)[0]
    found = [WARNING.search(line) for line in said]
    assert [" ".join(match.groups()) for match in found if match] == expected
