"""A running call holds its tensors, also if other threads or forked children drop them."""

from __future__ import annotations

import gc
import multiprocessing
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience
from tests.unit.communicator.waiting_call import later

ROWS = 1_000_000  # so much memory is given back to the system when it is freed
FORK = multiprocessing.get_context("fork")


class Foreign:
    """A tensor of another library; what it exports is all that holds the memory."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.array.__dlpack__(**arguments)


def is_right(out: Any) -> bool:
    return bool((out[:ROWS] == 3).all() and (out[ROWS:] == 4).all())


def drop_while_waiting(rank: int, comm: collops.Communicator, kind: str, told: Any) -> bool:
    """Rank 0 waits with tensors that only the call holds; rank 1 comes late and gets the data."""
    x = np.full(ROWS, 3.0 + rank)
    alive = weakref.ref(x)
    foreign = Foreign(x) if kind == "dlpack" else None
    tensors: list[Any] = [x if foreign is None else foreign]
    del x
    seen = []

    def drop() -> None:
        tensors.clear()
        if foreign is not None:
            foreign.array = None
        gc.collect()
        seen.append(alive() is not None)

    thread = later(drop, told) if rank == 0 else None
    if thread is None:
        told.get()
    if kind == "list":
        [out] = comm.all_gatherv(tensors, [ROWS] * 2)
    else:
        out = comm.all_gatherv(tensors.pop(), [ROWS] * 2)
    if thread is None:
        return is_right(out)
    thread.join()
    gc.collect()
    return is_right(out) and seen == [True] and alive() is None


@pytest.mark.parametrize("kind", ["array", "list", "dlpack"])
def test_the_plain_level_holds_its_tensors(kind: str) -> None:
    told = FORK.SimpleQueue()

    def work(rank: int) -> bool:
        comm = collops.init()
        comm.barrier()
        return drop_while_waiting(rank, comm, kind, told)

    assert run_ranks(work, 2, timeout=patience(20)) == [True, True]


@pytest.mark.parametrize("wrap", [lambda x: x, Foreign], ids=["arrays", "dlpack"])
def test_an_operation_holds_its_tensors(wrap: Callable[[Any], Any]) -> None:
    told = FORK.SimpleQueue()

    def work(rank: int) -> list[bool]:
        op = collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=2, backend="shm"))
        collops.init().barrier()
        counts = np.array([ROWS] * 2)
        y = np.empty(2 * ROWS, np.float16)
        ins = [wrap(np.full(ROWS, 3.0 + rank)), counts[:1], counts, counts * [0, 1], y]
        x = ins[0].array if isinstance(ins[0], Foreign) else ins[0]
        outs = [np.empty(2 * ROWS)]
        op.get_workspace_size(ins, outs)
        held = [weakref.ref(x), weakref.ref(outs[0])]
        del x, y
        result = [] if rank == 0 else list(outs)
        alive: list[bool] = []

        def drop() -> None:
            for tensor in ins:
                if isinstance(tensor, Foreign):
                    tensor.array = None
            del tensor
            ins.clear()
            outs.clear()
            gc.collect()
            alive.extend(ref() is not None for ref in held)

        if rank == 1:
            told.get()
            op.execute(ins, outs)
            return [is_right(result[0])]
        thread = later(drop, told)
        op.execute(ins, outs)
        thread.join()
        gc.collect()
        return alive + [ref() is None for ref in held]

    assert run_ranks(work, 2, timeout=patience(20)) == [[True] * 4, [True]]
