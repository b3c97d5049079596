"""Ranks that disagree in calls of the plain level hear its words, and the number of their call."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

Comm = collops.Communicator


def rows(comm: Comm, first: int = 3, second: int = 4) -> Any:
    return np.arange(2.0 * (second if comm.rank else first)).reshape(-1, 2)


def gather(comm: Comm) -> Any:
    return comm.all_gatherv(rows(comm), [2, 4] if comm.rank else [3, 4])


def gather_columns(comm: Comm) -> Any:
    return comm.all_gatherv(rows(comm).T.copy(), [2, 4] if comm.rank else [3, 4], dim=1)


def no_sizes(comm: Comm) -> Any:
    x = rows(comm)
    return comm.all_gatherv(x.astype("f4") if comm.rank else x)


def started(comm: Comm) -> Any:
    first = comm.start("all_gatherv", rows(comm))  # made in its turn, by another thread
    second = comm.start("all_gatherv", rows(comm), [3, 4])
    third = comm.start("reduce_scatterv", rows(comm, 4), [1, 3] if comm.rank else [2, 2])
    assert first.wait().shape == second.wait().shape == (7, 2)
    return third.wait()


def operator(comm: Comm) -> Any:
    """One rank comes by the struct: its words are the only ones that both have."""
    if comm.rank == 0:
        return comm.all_gatherv(rows(comm), [3, 4])
    op = collops.Operation(collops.AllGatherVParam(hccl_comm=comm, backend="shm"))
    counts, displs = np.array([6, 6]), np.array([0, 6])
    return op.forward([rows(comm), counts[1:], counts, displs, np.empty(6, np.float16)])


# What every rank hears behind two calls; the refusal is heard by rank 0.
CASES: dict[str, tuple[Callable[[Comm], Any], str]] = {
    "sizes": (gather, "all_gatherv: the ranks disagree in call 4: sizes[0] is 3 on R0 and 2 on R1"),
    "columns": (gather_columns, "all_gatherv: the ranks disagree in call 4: sizes[0] is 3 on R0 a"),
    "no sizes": (
        no_sizes,
        "all_gatherv without sizes: the ranks disagree in call 4: x's dtype is float64 on R0 and",
    ),
    "started": (
        started,
        "reduce_scatterv: the ranks disagree in call 6: sizes[0] is 2 on R0 and 1 on R1",
    ),
    "a struct": (
        operator,
        "AllGatherV: the ranks disagree in call 4: x's shape is [*, 2] on R0 and [] on R1",
    ),
}


def heard_by(rank: int, call: Callable[[Comm], Any]) -> str:
    comm = collops.init()
    comm.barrier()
    comm.all_gatherv(rows(comm))  # of several steps, as the next one
    comm.all_gatherv([rows(comm), rows(comm)])
    with pytest.raises(collops.RankMismatchError) as caught:
        call(comm)
    return re.sub(r"rank (\d) \(pid \d+\)", r"R\1", caught.value.message)


@pytest.mark.parametrize("name", CASES)
def test_a_disagreement(name: str) -> None:
    call, said = CASES[name]
    for message in run_ranks(heard_by, 2, call):
        assert message.startswith(said)


def test_a_refusal_counts_as_the_call_that_it_takes_the_place_of() -> None:
    def work(rank: int) -> str:
        comm = collops.init()
        comm.all_gatherv(rows(comm))
        message = ""
        for _ in range(2):
            with pytest.raises(collops.Error) as caught:
                comm.all_gatherv(rows(comm), [3, -4] if rank else [3, 4])
            message = caught.value.message
        with pytest.raises(collops.Error) as caught:
            comm.barrier() if rank else comm.all_reduce(np.ones(1))
        return message + caught.value.message

    first, second = run_ranks(work, 2)
    assert "refused call 3: all_gatherv: sizes[1] must be >= 0" in first
    for message in (first, second):
        assert "the ranks disagree in call 4: the call is all_reduce on" in message
