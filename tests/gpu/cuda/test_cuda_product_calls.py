"""LinearParallel over cuda: engines by name, ranks that disagree or fail, and streams."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import collops
from patience import patience
from tests.devices.product_ranks import CUDA, PLACES, Kind, Product, check, product
from tests.gpu.gpu_ranks import Gather

GRID = Kind.ALL_GATHER_LINEAR_REDUCE_SCATTER


OVERLAPPING = product(Kind.ALL_GATHER_LINEAR, [1100, 1000], k=3, n=2048, dtype="float16")


@pytest.mark.parametrize("where", ["processes", "nccl"])
def test_an_engine_by_name(gpu: Any, where: str) -> None:
    case = product(Kind.ALL_GATHER_LINEAR, [2, 3])
    fields = PLACES[where].fields

    def work(rank: int) -> Any:
        reasons = []
        for engine in ("local", "windows", "pipeline"):
            with pytest.raises(collops.UnsupportedError) as error:
                Product(gpu, case, rank, engine=engine, **fields)
            reasons.append(str(error.value))
        with pytest.raises(collops.ArgumentError) as error:
            Product(gpu, case, rank, engine="fused", **fields)
        reasons.append(str(error.value))
        call = Product(gpu, case, rank, engine="streams", **fields)
        assert Product(gpu, case, rank, **fields).op.engine == "streams" == call.op.engine
        return reasons, call.run(gpu.stream())

    found = PLACES[where].run(gpu, 2, work)
    check(case, [outputs for _, outputs in found])
    for *refusals, unknown in (reasons for reasons, _ in found):
        for text in refusals:
            assert f"the tensors of backend {fields['backend']} are on a device" in text
        assert "use one of local, windows, pipeline, streams" in unknown


@pytest.mark.parametrize("where", ["processes", "nccl"])
def test_without_inner_columns_there_is_no_product(gpu: Any, where: str) -> None:
    """As on the CPU, and before any rank is waited for."""
    case = product(Kind.LINEAR_ALL_REDUCE, [3, 3], k=0)

    def work(rank: int) -> list[str]:
        said = []
        for backend in (PLACES[where].fields["backend"], "shm"):
            with pytest.raises(collops.ArgumentError) as error:
                Product(gpu, case, rank, **PLACES[where].fields | {"backend": backend})
            said.append(str(error.value))
        return said

    for on_gpu, on_cpu in PLACES[where].run(gpu, 2, work):
        assert "x has size 0 in dim 1 of [3, 0]: only dim 0 may be 0" in on_gpu
        assert on_gpu == on_cpu


@pytest.mark.parametrize("where", PLACES)
def test_collectives_beside_products_have_the_greatest_priority(gpu: Any, where: str) -> None:
    """On one GPU nothing runs beside products."""

    def work(rank: int) -> tuple[int, ...]:
        def streams() -> int:
            return int(gpu.cuda.cuda.SimStreamsOfPriority(-5))

        before = streams()
        call = Product(gpu, OVERLAPPING, rank, **PLACES[where].fields)
        call.run(gpu.stream())
        return before, streams()

    on_one = PLACES[where].on_one
    for before, after in PLACES[where].run(gpu, 2, work):
        assert after - before == (0 if on_one else 1)


def test_a_group_that_closes_waits_for_no_other(gpu: Any) -> None:
    """A kernel of another group waits for the rank that closes its group with cuBLASLt's handle."""
    place, closed = CUDA["threads on one GPU"], threading.Event()

    def work(rank: int) -> None:
        stream = gpu.stream()
        comm = collops.init(rank, 2, **place.fields)
        Product(gpu, product(Kind.LINEAR_ALL_REDUCE, [2, 2]), rank, **place.fields).run(stream)
        other = Gather(gpu, rank, [3, 2], "float32", **place.fields | {"comm_domain": "other"})
        other.execute(stream)
        other.check(0, stream)
        if rank == 0:
            other.execute(stream)
            while gpu.cuda.waiting_kernels() == 0:
                time.sleep(0.002)
            comm.close()
            closed.set()
        else:
            assert closed.wait(patience(60))
            other.execute(stream)
        other.check(0, stream)

    place.run(gpu, 2, work)


DIFFERENT = {
    "k": [product(Kind.ALL_GATHER_LINEAR, [3, 2], k=k) for k in (5, 6)],
    "rows": [product(Kind.LINEAR_ALL_REDUCE, [rows] * 2) for rows in (3, 4)],
    "no rows": [product(Kind.LINEAR_REDUCE_SCATTER, [rows] * 2) for rows in (0, 4)],
    "columns": [product(Kind.LINEAR_ALL_REDUCE, [3, 3], n=n) for n in (70, 71)],
    "type": [product(kind, [4, 4]) for kind in (Kind.LINEAR_ALL_REDUCE, Kind.ALL_GATHER_LINEAR)],
}
NAMED = {
    "k": "k is 5 on rank 0",
    "rows": "the sum of the rows is 3 on rank 0",
    "no rows": "the sum of the rows is 0 on rank 0",
    "columns": "n is 70 on rank 0",
    "type": "type is 0 on rank 0",
}


@pytest.mark.parametrize("what", DIFFERENT)
@pytest.mark.parametrize("where", ["processes", "threads on one GPU"])
def test_what_ranks_disagree_in_is_named(gpu: Any, where: str, what: str) -> None:
    def work(rank: int) -> str:
        stream, fields = gpu.stream(), CUDA[where].fields
        call = Product(gpu, DIFFERENT[what][rank], rank, **fields)
        with pytest.raises(collops.RankMismatchError) as error:  # soon, if a kernel has found it
            for _ in range(2):
                call.run(stream)
        return str(error.value)

    for text in CUDA[where].run(gpu, 2, work):
        assert NAMED[what] in text


def test_groups_of_a_grid_compare(gpu: Any) -> None:
    """Rank 3 has other columns; its groups are {2, 3} and {1, 3}, and rank 0 is in none of them."""

    def work(rank: int) -> str:
        n = 9 if rank == 3 else 8
        case = product(GRID, [2, 3, 2, 3], grid=(2, 2, True), n=n, scatter=[[4, 1]] * 4)
        stream = gpu.stream()
        call = Product(gpu, case, rank, **CUDA["processes"].fields)
        with pytest.raises(collops.Error) as error:
            for _ in range(3):
                call.run(stream)
        return str(error.value)

    for text in CUDA["processes"].run(gpu, 4, work):
        assert "n is 8" in text


def test_a_rank_that_fails_ends_the_call_of_the_others(gpu: Any) -> None:
    case = product(Kind.ALL_GATHER_LINEAR, [900, 4, 3], has_residual=True)

    def work(rank: int) -> tuple[int, str]:
        stream = gpu.stream()
        call = Product(gpu, case, rank, **CUDA["processes"].fields)
        call.run(stream)
        if rank == 1:
            call.workspace = call.scratch(call.workspace_bytes - 1)
        with pytest.raises(collops.Error) as error:
            for _ in range(2):
                call.execute(stream)
                stream.synchronize()
        return error.value.code, str(error.value)

    found = CUDA["processes"].run(gpu, 3, work)
    assert found[1][0] == 22
    assert "workspace" in found[1][1]
    for code, text in (found[0], found[2]):
        assert code == 102
        assert "rank 1 refused its part" in text and "workspace" in text


def test_ranks_on_one_gpu_need_streams(gpu: Any) -> None:
    """Of their own, as the legacy stream is one for all; alone a rank may use it."""
    fields = CUDA["threads on one GPU"].fields
    alone = product(Kind.PURE_LINEAR, [2, 3])
    together = [product(Kind.LINEAR_ALL_REDUCE, [2, 2]), OVERLAPPING]

    def work(rank: int) -> Any:
        lone = Product(gpu, alone, rank, **fields)
        lone.execute()
        texts = []
        for number, case in enumerate(together):
            of_its_own = fields | {"comm_domain": f"group {number}"}
            with pytest.raises(collops.Error) as error:
                Product(gpu, case, rank, **of_its_own).execute()
            texts.append(str(error.value))
        return [gpu.array(output) for output in lone.outputs], texts

    found = CUDA["threads on one GPU"].run(gpu, 2, work)
    check(alone, [outputs for outputs, _ in found])
    for text in (text for _, texts in found for text in texts):
        assert "stream of its own" in text
