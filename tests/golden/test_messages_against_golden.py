"""Every golden case of Send and Recv on living ranks, bit for bit: both levels, threads too."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from collops.golden.cases import Case, all_cases
from once import compute, expected, inputs

import collops
from collops.testing import run_ranks


def held(case: Case, rank: int) -> Any:
    """The rank's x, in memory of its own."""
    x = inputs(case)[rank]["x"].copy()
    return x.view(ml_dtypes.bfloat16) if case.dtype == "bfloat16" else x


def call_operation(case: Case, rank: int, x: Any) -> Any:
    common = {"rank": rank, "rank_size": case.rank_size, "backend": "shm"}
    if case.root == rank:
        collops.Operation(collops.SendParam(dest_rank=case.peer, **common)).forward([x])
        return x
    [out] = collops.Operation(collops.RecvParam(src_rank=case.root, **common)).forward([x])
    return out


def call_plainly(comm: collops.Communicator, case: Case, rank: int, x: Any) -> Any:
    if case.root == rank:
        comm.send(x, case.peer, tag=len(case.name))
        return x
    return comm.recv(np.empty_like(x), case.root, tag=len(case.name))


def cases_of(ranks: int) -> list[Case]:
    return [case for name in ("send", "recv") for case in all_cases(name, rank_sizes=(ranks,))]


def work(rank: int, ranks: int, level: str) -> list[str]:
    wrong = []
    comm = collops.init()
    for case in cases_of(ranks):
        x = held(case, rank)
        out = x
        if rank in (case.root, case.peer):
            out = call_operation(case, rank, x) if level == "atb" else None
            out = call_plainly(comm, case, rank, x) if out is None else out
        if out.tobytes() != expected(case)[rank].tobytes() or out.shape != x.shape:
            wrong.append(case.id)
    comm.barrier()
    return wrong


@pytest.mark.parametrize("level", ["atb", "plain"])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_messages_are_goldens(ranks: int, level: str) -> None:
    compute(cases_of(ranks))
    assert run_ranks(work, ranks, ranks, level) == [[]] * ranks


def test_messages_of_threads_are_goldens() -> None:
    assert run_ranks(work, 3, 3, "plain", threads=True) == [[]] * 3
