"""A wrong call of the plain level is refused: its rank gets the error, the others the message."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from disagreement_rows import Call
from even_rows import EVEN_FAULTS
from plain_rows import EXCHANGES, GATHERS, SCATTERS, Rows, X, gather, scatter
from product_rows import FAULTS, METHODS, call, expected, product
from right_calls import Heard, heard_of
from rooted_rows import ROOTED_FAULTS

import collops
from collops.testing import run_ranks
from patience import patience

LATE_S = patience(5.0)  # far less than the time-out


@dataclass(frozen=True)
class Refused:
    """The call of rank 1, the call of the others, and rank 1's error."""

    wrong: Call
    right: Call
    code: int
    message: str
    begins: str


def refused(kind: str, rows: Rows, right: Call, begins: str) -> dict[str, Refused]:
    return {
        f"{kind}: {name}": Refused(wrong, right, code, message, begins)
        for name, wrong, code, message in rows
    }


V_ROWS = {
    **refused("gather", GATHERS, gather(X, [3, 3]), "all_gatherv: "),
    **refused("exchange", EXCHANGES, gather(X), "all_gatherv: "),
    **refused("scatter", SCATTERS, scatter(X), "reduce_scatterv: "),
}
EVEN_ROWS = {name: Refused(*fault, "") for name, fault in EVEN_FAULTS.items()}
ROOTED_ROWS = {name: Refused(*fault, "") for name, fault in ROOTED_FAULTS.items()}
PRODUCT_ROWS = {
    name: Refused(product(method, **changes), product(method), code, message, f"{method}: ")
    for name, (method, changes, code, message) in FAULTS.items()
}


def next_gather(comm: collops.Communicator, number: int) -> bool:
    return comm.all_gatherv(np.array([comm.rank])).tolist() == list(range(comm.size))


def next_sum(comm: collops.Communicator, number: int) -> bool:
    total = comm.all_reduce(np.array([comm.rank, 10])).tolist()
    return total == [sum(range(comm.size)), 10 * comm.size]


def next_product(comm: collops.Communicator, number: int) -> bool:
    method = METHODS[number % 4]
    return np.array_equal(call(comm, method), expected(comm.rank, method))


@dataclass(frozen=True)
class Table:
    """Rows, on how many ranks they run, and whether a call after one of them is right."""

    rows: dict[str, Refused]
    ranks: int
    modes: tuple[str, ...]
    after: Callable[[collops.Communicator, int], bool]


TABLES = {
    "v": Table(V_ROWS, 2, ("processes", "threads"), next_gather),
    "even": Table(EVEN_ROWS, 3, ("processes",), next_sum),
    "rooted": Table(ROOTED_ROWS, 3, ("processes",), next_sum),
    "products": Table(PRODUCT_ROWS, 4, ("processes",), next_product),
}
NODES = [
    (name, mode, row)
    for name, table in TABLES.items()
    for mode in table.modes
    for row in table.rows
]


def all_rows(rank: int, name: str) -> dict[str, tuple[Heard, float, bool]]:
    """Per row: this rank's error, the seconds until it, and whether the next call is right."""
    comm = collops.init(timeout_s=patience(20))
    table, seen = TABLES[name], {}
    assert table.after(comm, 0)
    for number, (row, refusal) in enumerate(table.rows.items()):
        comm.barrier()
        begin = time.monotonic()
        heard = heard_of(partial(refusal.wrong if rank == 1 else refusal.right, comm))
        seconds = time.monotonic() - begin
        seen[row] = heard, seconds, table.after(comm, number)
    return seen


@cache
def results_of(name: str, mode: str) -> list[dict[str, tuple[Heard, float, bool]]]:
    return run_ranks(all_rows, TABLES[name].ranks, name, threads=mode == "threads")


@pytest.mark.parametrize(("name", "mode", "row"), NODES)
def test_the_rank_with_the_fault_gets_its_own_error(name: str, mode: str, row: str) -> None:
    wanted = TABLES[name].rows[row]
    kind, code, message = results_of(name, mode)[1][row][0]
    assert (code, wanted.message in message) == (wanted.code, True), message
    assert kind == ("OutOfMemoryError" if code == 27 else "ArgumentError")
    assert message.startswith(wanted.begins)


@pytest.mark.parametrize(("name", "mode", "row"), NODES)
def test_the_others_get_its_message(name: str, mode: str, row: str) -> None:
    results = results_of(name, mode)
    own_message = results[1][row][0][2]
    for rank, result in enumerate(results):
        (kind, code, message), seconds, _ = result[row]
        if rank != 1:
            assert (kind, code) == ("RankMismatchError", 102)
            assert "rank 1 " in message
            assert own_message[:100] in message
            assert seconds < LATE_S


@pytest.mark.parametrize(("name", "mode", "row"), NODES)
def test_the_next_call_works(name: str, mode: str, row: str) -> None:
    assert all(result[row][2] for result in results_of(name, mode))


def test_several_ranks_may_refuse() -> None:
    def work(rank: int) -> list[Any]:
        comm = collops.init()
        x = X if rank == 0 else X.T
        return [heard_of(lambda: comm.all_gatherv(x, [3, 3, 3]))[1], comm.all_gatherv(X).shape]

    first, *others = run_ranks(work, 3)
    assert first == [102, (9, 2)]
    assert others == [[1, (9, 2)]] * 2
