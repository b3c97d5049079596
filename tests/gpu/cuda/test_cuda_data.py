"""Backend cuda: short and long messages, in place and through the ranks' regions, bit for bit."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from cuda_ranks import PROCESSES, THREADS, THREADS_ON_ONE, communicator, results
from gpu_ranks import as_threads, begins, numbers, reduced, run

import collops
from collops.testing import run_ranks
from patience import patience

# Rows of 40 floats: nothing, short messages, and long ones, which take several pieces of a slot.
ROWS = {2: [900, 7], 3: [0, 60, 3000], 4: [1, 52, 51, 400]}
WIDTH = 40


@pytest.mark.parametrize("where", [PROCESSES, THREADS])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_collectives(gpu: Any, where: str, ranks: int) -> None:
    sizes = ROWS[ranks]

    def rows(rank: int, count: int, seed: int) -> Any:
        return numbers(rank, count * WIDTH, "float32", seed).reshape(count, WIDTH)

    def work(rank: int) -> dict[str, Any]:
        comm = communicator(gpu, rank, ranks, where, "data")
        found = {}
        for turn in range(3):  # the regions are used again
            x = gpu.tensor(rows(rank, sizes[rank], turn))
            gathered = gpu.poisoned((sum(sizes), WIDTH), x)
            comm.all_gatherv(x, sizes, out=gathered)
            whole = gpu.tensor(rows(rank, sum(sizes), turn))
            own = gpu.poisoned((sizes[rank], WIDTH), x)
            comm.reduce_scatterv(whole, sizes, out=own)
            total = gpu.poisoned((sum(sizes), WIDTH), x)
            comm.all_reduce(whole, out=total)
            small = gpu.tensor(rows(rank, 3, turn))
            little = gpu.poisoned((3, WIDTH), x)
            comm.all_reduce(small, out=little)
            gpu.array(little)
            whole.write(np.zeros((sum(sizes), WIDTH), np.float32))  # the calls have read it
            found = {"gathered": gathered, "own": own, "total": total, "little": little}
        return {name: gpu.array(tensor) for name, tensor in found.items()}

    wholes = [rows(rank, sum(sizes), 2) for rank in range(ranks)]
    for rank, found in enumerate(results(where, ranks, work)):
        begin = begins(sizes)[rank]
        own = slice(begin, begin + sizes[rank])
        expected = {
            "gathered": np.concatenate([rows(r, size, 2) for r, size in enumerate(sizes)]),
            "own": reduced([whole[own] for whole in wholes], "sum"),
            "total": reduced(wholes, "sum"),
            "little": reduced([rows(r, 3, 2) for r in range(ranks)], "sum"),
        }
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values, err_msg=f"{name} of rank {rank}")


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_threads_on_one_gpu(gpu: Any, ranks: int) -> None:
    """Each reads the others' tensors where they lie. Ranks on one GPU need a stream each."""
    sizes = [rows * WIDTH for rows in ROWS[ranks]]
    counts, displs = np.array(sizes, np.int64), begins(sizes)
    fields = {
        "rank_size": ranks,
        "backend": "cuda",
        "comm_domain": "one",
        "comm_mode": collops.CommMode.COMM_MULTI_THREAD,
    }

    def work(rank: int) -> list[Any]:
        gpu.choose(0)
        stream = gpu.stream()
        gather = collops.Operation(collops.AllGatherVParam(rank=rank, **fields))
        scatter = collops.Operation(collops.ReduceScatterVParam(rank=rank, **fields))
        found = []
        for turn in range(3):
            x = gpu.tensor(numbers(rank, sizes[rank], "float32", turn))
            out = gpu.poisoned((sum(sizes),), x)
            y = np.empty(sum(sizes), np.float16)
            inputs = [x, counts[rank : rank + 1], counts, displs, y]
            found.append(run(gather, gpu, inputs, out, stream))
            whole = gpu.tensor(numbers(rank, sum(sizes), "float32", turn).reshape(-1, 1))
            own = gpu.poisoned((sizes[rank], 1), x)
            y = np.empty(sizes[rank], np.float16)
            inputs = [whole, counts, displs, counts[rank : rank + 1], y]
            found.append(run(scatter, gpu, inputs, own, stream)[:, 0])
            whole.write(np.zeros((sum(sizes), 1), np.float32))  # the call has read it
        return found

    for rank, found in enumerate(as_threads(ranks, work)):
        own = slice(displs[rank], displs[rank] + sizes[rank])
        for turn in range(3):
            blocks = [numbers(r, size, "float32", turn) for r, size in enumerate(sizes)]
            wholes = [numbers(r, sum(sizes), "float32", turn)[own] for r in range(ranks)]
            np.testing.assert_array_equal(found[2 * turn], np.concatenate(blocks))
            np.testing.assert_array_equal(found[2 * turn + 1], reduced(wholes, "sum"))


def test_ranks_on_one_gpu_need_streams(gpu: Any) -> None:
    def work(rank: int) -> str:
        comm = communicator(gpu, rank, 2, THREADS_ON_ONE, "default")
        with pytest.raises(collops.Error) as error:
            x = gpu.tensor(numbers(rank, 3, "float32"))
            comm.all_gatherv(x, [3, 3], out=gpu.poisoned((6,), x))
        return str(error.value)

    for text in as_threads(2, work):
        assert "GPU 0" in text and "stream" in text


@pytest.mark.parametrize("where", [PROCESSES, THREADS])
def test_rows_for_each_rank(gpu: Any, where: str) -> None:
    """Messages of one call that are short for one pair of ranks and long for another."""
    sends = [[5, 0, 900], [70, 3, 0], [1, 2000, 40]]

    def rows(source: int, target: int) -> Any:
        count = sends[source][target]
        return numbers(source, count * WIDTH, "float32", target).reshape(count, WIDTH)

    def work(rank: int) -> Any:
        comm = communicator(gpu, rank, 3, where, "exchange")
        receives = [row[rank] for row in sends]
        x = gpu.tensor(np.concatenate([rows(rank, target) for target in range(3)]))
        out = gpu.poisoned((sum(receives), WIDTH), x)
        comm.all_to_allv(x, sends[rank], receives, out=out)
        return gpu.array(out)

    for rank, found in enumerate(results(where, 3, work)):
        expected = np.concatenate([rows(source, rank) for source in range(3)])
        np.testing.assert_array_equal(found, expected)


def test_a_barrier_and_a_broadcast(gpu: Any) -> None:
    def work(rank: int) -> Any:
        comm = communicator(gpu, rank, 3, PROCESSES, "root")
        x = gpu.tensor(numbers(rank, 5000, "float32"))
        comm.barrier()
        comm.broadcast(x, 2)
        return gpu.array(x)

    for found in results(PROCESSES, 3, work):
        np.testing.assert_array_equal(found, numbers(2, 5000, "float32"))


def test_a_split_while_a_kernel_waits(gpu: Any) -> None:
    """First contact of the subgroup takes memory, and rank 0's kernel waits for rank 1 then."""
    counts = np.array([4000, 4000], np.int64)

    def work(rank: int) -> Any:
        comm = communicator(gpu, rank, 2, PROCESSES, "whole")
        op = collops.Operation(
            collops.AllGatherVParam(rank=rank, rank_size=2, backend="cuda", comm_domain="whole")
        )
        sub = comm.split(0, rank)
        stream, x = gpu.stream(), gpu.tensor(numbers(rank, 4000, "float32"))
        out, total = gpu.poisoned((8000,), x), gpu.poisoned((4000,), x)
        y = np.empty(8000, np.float16)
        inputs = [x, counts[:1], counts, begins([4000, 4000]), y]
        op.get_workspace_size(inputs, [out])
        held = threading.Event()

        def hold() -> None:
            with gpu.held(stream):
                held.set()
                time.sleep(1)

        if rank == 1:
            threading.Thread(target=hold).start()
            held.wait(patience(60))
        op.execute(inputs, [out], None, stream=stream)
        sub.all_reduce(x, out=total)
        return gpu.array(out), gpu.array(total)

    parts = [numbers(rank, 4000, "float32") for rank in range(2)]
    for gathered, total in run_ranks(work, 2):
        np.testing.assert_array_equal(gathered, np.concatenate(parts))
        np.testing.assert_array_equal(total, reduced(parts, "sum"))
