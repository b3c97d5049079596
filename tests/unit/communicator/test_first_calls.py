"""Ranks that share domains make their first calls in one order; else the error says so."""

from __future__ import annotations

import multiprocessing

import numpy as np

import collops
from collops.testing import run_ranks


def test_a_time_out_names_the_domains_that_have_not_met() -> None:
    def work(rank: int) -> str:
        names = ["left", "right"] if rank == 0 else ["right"]
        operations = {}
        for domain in names:
            param = collops.AllReduceParam(
                rank=rank, rank_size=2, backend="shm", comm_domain=domain
            )
            operations[domain] = collops.Operation(param)
        try:
            operations[names[0]].forward([np.ones(3, np.float32)])
        except collops.Error as error:
            return error.message
        return "no error"

    left, _ = run_ranks(work, 2, env={"COLLOPS_TIMEOUT_S": "1"})
    assert 'rank 1 of 2 did not connect within 1 s: first contact of comm_domain "left"' in left
    assert (
        'this is comm_domain "left", and "right" of this rank has not met either: '
        "ranks that share several make their first calls in the same order" in left
    )


def test_a_time_out_of_the_only_domain_names_no_other() -> None:
    def work(rank: int) -> str:
        met = collops.init(comm_domain="met")
        met.barrier()
        param = collops.AllReduceParam(rank=rank, rank_size=2, backend="shm", comm_domain="late")
        operation = collops.Operation(param)
        if rank == 1:
            told.get()  # that the other rank has waited long enough
            return ""
        try:
            operation.forward([np.ones(3, np.float32)])
        except collops.RankTimeoutError as error:
            return error.message
        finally:
            told.put(None)
        return "no error"

    told = multiprocessing.get_context("fork").SimpleQueue()
    late, _ = run_ranks(work, 2, env={"COLLOPS_TIMEOUT_S": "2"})
    assert "2 s" in late
    assert "has not met" not in late
