"""Ranks that disagree: ERROR_RANK_MISMATCH on all, naming ranks, field and both values.

The communicator refuses calls from then on, and a new one can be made in the same processes.
"""

from __future__ import annotations

import re
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from disagreement_rows import EXCHANGES, LINEAR_PAIR, LINEAR_SQUARE, PLAIN, OfStruct, Rows, X
from even_rows import EVEN_DISAGREEMENTS
from product_rows import DISAGREEMENTS
from right_calls import outcome
from rooted_rows import ROOTED_DISAGREEMENTS

import collops
from collops.testing import run_ranks
from patience import patience


class Table(NamedTuple):
    """Rows, the number of ranks, which of them is the odd one, and in which modes they run."""

    rows: Rows
    ranks: int
    odd: int
    modes: tuple[str, ...]


MODES: dict[str, dict[str, Any]] = {
    "processes": {},
    "threads": {"threads": True},
    "fused": {"env": {"COLLOPS_FUSED": "1"}},
    "pipeline": {"env": {"COLLOPS_FUSED": "0"}},
}
ENGINES = ("fused", "pipeline")
TABLES = {
    "plain": Table(PLAIN, 3, 2, ("processes", "threads")),
    "exchange": Table(EXCHANGES, 3, 2, ("processes", "threads")),
    "even": Table(EVEN_DISAGREEMENTS, 3, 2, ("processes", "threads")),
    "rooted": Table(ROOTED_DISAGREEMENTS, 3, 2, ("processes", "threads")),
    "LinearParallel": Table(LINEAR_PAIR, 2, 1, ENGINES),
    "LinearParallel of four": Table(LINEAR_SQUARE, 4, 1, ENGINES),
    "products": Table(DISAGREEMENTS, 4, 2, ENGINES),
}
NODES = [
    (name, mode, row)
    for name, table in TABLES.items()
    for mode in table.modes
    for row in table.rows
]


def all_rows(rank: int, name: str) -> dict[str, Any]:
    """Per row: the disagreement, two later calls, and a call of a new communicator."""
    results = {}
    table = TABLES[name]
    for row, (odd, even, _) in table.rows.items():
        comm = collops.init(comm_domain=row, timeout_s=patience(20))
        own = odd if rank == table.odd else even
        call = own.prepared(comm) if isinstance(own, OfStruct) else partial(own, comm)
        first, *later = (outcome(one) for one in (call, comm.barrier, call))
        again = collops.init(comm_domain=row, timeout_s=patience(20))
        gathered = again.all_gatherv(np.array([rank])).tolist()
        results[row] = first[:2], [one[:2] for one in later], gathered
    return results


@cache
def results_of(name: str, mode: str) -> list[dict[str, Any]]:
    return run_ranks(all_rows, TABLES[name].ranks, name, **MODES[mode])


@pytest.mark.parametrize(("name", "mode", "row"), NODES)
def test_all_ranks_get_the_disagreement(name: str, mode: str, row: str) -> None:
    table = TABLES[name]
    for result in results_of(name, mode):
        code, message = result[row][0]
        assert code == 102, message
        assert "disagree" in message
        assert f"on rank {table.odd} " in message
        sides = re.findall(r"on rank (\d+) ", message)
        assert len(set(sides)) == 2 or (len(sides) == 2 and row == "itself"), message
        assert [word for word in table.rows[row][2] if word not in message] == [], message


@pytest.mark.parametrize(("name", "mode", "row"), NODES)
def test_the_communicator_refuses_later_calls(name: str, mode: str, row: str) -> None:
    for result in results_of(name, mode):
        for code, message in result[row][1]:
            assert code == 102
            assert "has ended" in message


@pytest.mark.parametrize(("name", "mode", "row"), NODES)
def test_a_new_communicator_can_be_made(name: str, mode: str, row: str) -> None:
    ranks = TABLES[name].ranks
    assert [result[row][2] for result in results_of(name, mode)] == [list(range(ranks))] * ranks


def test_gathered_shapes_may_differ_where_sizes_are_given() -> None:
    def work(rank: int) -> list[float]:
        comm = collops.init()
        x = X[:2] if rank == 0 else X[:2].reshape(2, 2, 1)
        return list(comm.all_gatherv(x, [2, 2]).ravel())

    assert run_ranks(work, 2) == [[0.0, 1.0, 2.0, 3.0] * 2] * 2
