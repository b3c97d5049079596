"""Every refusal of the table: its code and its text, from Python.

COLLOPS_UPDATE_REFUSALS=1 writes what is heard into the table, for rows without a text too.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience
from tests.refusals.refusal_table import Row, sections, write
from tests.refusals.right_calls import RIGHT, WORDS, f4, ints

UPDATE = bool(os.environ.get("COLLOPS_UPDATE_REFUSALS"))
LATE_S = patience(5.0)  # far less than the time-out
HEARD: dict[tuple[int, str], str] = {}
Rows = list[tuple[int, Row]]


@pytest.fixture(scope="module", autouse=True)
def written() -> Iterator[None]:
    """Writes the table behind the last test, if it is to be written."""
    yield
    if UPDATE:
        write(HEARD)


def without_variables(text: str) -> str:
    """The text with what differs from run to run replaced."""
    text = re.sub(r"\d+ bytes are available .*", "<bytes> are available", text)
    text = re.sub(r"(no memory for an output of shape \[.*?\]): .*", r"\1: <numpy's reason>", text)
    return re.sub(r"\bjob [a-z_]+/[0-9a-f-]+", "job <job>", text)


def told(run: Callable[[], Any]) -> str:
    """The code of a call's error, or its class, and the message; "" without an error."""
    try:
        run()
    except collops.Error as error:
        return without_variables(f"{error.code} {error.message}")
    except Exception as error:
        return f"{type(error).__name__} {error}"
    return ""


def compare(found: list[tuple[int, Row, str, str]]) -> None:
    """Each row, its operator and what was heard, with what the table says."""
    wrong = []
    for number, row, name, text in found:
        HEARD[number, name] = text
        if not UPDATE and text != row.expected(name):
            wrong.append(f"{name} {row.program}\n  heard: {text}\n  table: {row.expected(name)}")
    assert not wrong, "\n".join(wrong)


def first_phase(row: Row, name: str) -> str:
    """The first of creation and the two local steps that refuses, and what it says."""
    right = RIGHT[name]
    values = right.call(0)
    with mock.patch.dict(os.environ, row.variables):
        exec(row.program, values)
        operation: list[collops.Operation] = []
        text = told(lambda: operation.append(collops.Operation(right.param(values))))
        if text:
            return f"create {text}"
        ins, outs = right.tensors(values)
        inferred = told(lambda: operation[0].infer_shape(ins))
        planned = told(lambda: operation[0].get_workspace_size(ins, outs))
    if inferred:
        return f"infer {inferred}" + (f" / plan {planned}" if planned != inferred else "")
    return f"plan {planned}" if planned else "ok"


STRUCTS = [one for part in sections("structs") for one in part]


@pytest.mark.parametrize("name", RIGHT)
def test_structs(name: str) -> None:
    """What creation, infer_shape and get_workspace_size refuse; they wait for no one."""
    rows = [(number, row) for number, row in STRUCTS if name in row.names]
    assert len(rows) > 10
    compare([(n, row, name, first_phase(row, name)) for n, row in rows if "on(" not in row.program])


class Prepared:
    """A right call of an operator that is planned, of which a row spoils the second phase."""

    def __init__(self, name: str, rank: int) -> None:
        self._right = RIGHT[name]
        self.values = self._right.call(rank, how="execute", workspace=None, stream=None)
        self.values["op"] = self.operation()
        ins, outs = self._right.tensors(self.values)
        if size := self.values["op"].get_workspace_size(ins, outs):
            self.values["workspace"] = np.empty(size, np.uint8)
        self.values["fresh"] = self.operation

    def operation(self) -> collops.Operation:
        return collops.Operation(self._right.param(self.values))

    def run(self) -> Any:
        ins, outs = self._right.tensors(self.values)
        if self.values["how"] == "forward":
            return [out.tolist() for out in self.values["op"].forward(ins) or ins]
        self.values["op"].execute(ins, outs, self.values["workspace"], self.values["stream"])
        return [out.tolist() for out in outs or ins]


def second_phases(rank: int, name: str, rows: Rows) -> list[tuple[str, bool]]:
    """Per row what this rank is told, and whether the calls behind it have the first result.

    The output of a rank that has refused nothing is as it was, but for those that gather first.
    """
    right = Prepared(name, rank).run()
    seen = []
    for _, row in rows:
        call = Prepared(name, rank)
        if rank == 1:
            exec(row.program, call.values)
        out = call.values.get("out") if rank == 0 and name != "LinearParallel" else None
        before = out.tobytes() if out is not None else b""
        text = told(call.run)
        assert out is None or out.tobytes() == before
        after = [Prepared(name, rank), Prepared(name, rank)]
        after[1].values["how"] = "forward"
        results = [one.run() for one in after]
        seen.append((text, results == [right, right]))
    return seen


EXECUTED = [one for part in sections("execute") for one in part]


@pytest.mark.parametrize("name", dict.fromkeys(n for _, row in EXECUTED for n in row.names))
def test_execute(name: str) -> None:
    """Rank 1 refuses its second phase before anything is sent: rank 0 is told, and all go on."""
    rows = [(number, row) for number, row in EXECUTED if name in row.names]
    others, own = run_ranks(second_phases, 2, name, rows)
    stopped = [
        row.program
        for (_, row), a, b in zip(rows, own, others, strict=True)
        if not a[1] or not b[1]
    ]
    assert not stopped
    compare([(n, row, name, text) for (n, row), (text, _) in zip(rows, own, strict=True)])
    tell_the_others(own, others)


def tell_the_others(own: list[Any], others: list[Any]) -> None:
    for (text, *_), (heard, *_) in zip(own, others, strict=True):
        assert heard.startswith("102 ")
        assert "rank 1 (pid " in heard
        assert text.partition(" ")[2][:100] in heard


def names_of(comm: collops.Communicator) -> dict[str, Any]:
    """What a row of the plain level may use: the methods by their names."""
    methods = {name: getattr(comm, name) for name in dir(comm) if not name.startswith("_")}
    values = {
        **WORDS,
        **methods,
        "comm": comm,
        "rank": comm.rank,
        "torch": sys.modules.get("torch"),
    }
    calls = (operate, gather_v, scatter_v, exchange_v, linear)
    values |= {"op" if call is operate else call.__name__: partial(call, comm) for call in calls}
    experts = {"EW": np.ones((2, 2, 4), np.float32), "C": [[1, 1]] * 3}
    return {**values, "X": f4(6, 2), "W": np.ones((2, 4), np.float32), **experts}


def operate(comm: collops.Communicator, name: str, ins: Any, **fields: Any) -> Any:
    """An operator's forward on that communicator."""
    struct = RIGHT[name].struct
    own = {"rank": comm.rank, "hccl_comm": comm, "backend": "shm", **fields}
    return collops.Operation(struct(**own)).forward(ins)


def gather_v(
    comm: collops.Communicator, counts: list[int], displs: list[int], **fields: Any
) -> Any:
    """AllGatherV of up to 12 elements of each of 3 ranks."""
    own = ints(counts[comm.rank])
    ins = [f4(6, 2), own, ints(*counts), ints(*displs), np.empty(6, np.float16)]
    return operate(comm, "AllGatherV", ins, **fields)


def scatter_v(
    comm: collops.Communicator, counts: list[int], displs: list[int], **fields: Any
) -> Any:
    """ReduceScatterV of 12 elements to 3 ranks."""
    own = ints(counts[comm.rank])
    ins = [f4(6, 2), ints(*counts), ints(*displs), own, np.empty(6, np.float16)]
    return operate(comm, "ReduceScatterV", ins, **fields)


def exchange_v(comm: collops.Communicator, name: str = "AllToAllV", **changes: Any) -> Any:
    """Every rank sends rank q q + 1 elements; `changes` replace lists of this rank."""
    own = comm.rank + 1
    lists = {
        "send_counts": [q + 1 for q in range(comm.size)],
        "sdispls": [0] * comm.size,
        "recv_counts": [own] * comm.size,
        "rdispls": [q * own for q in range(comm.size)],
    }
    lists |= {name: changes.pop(name) for name in lists if name in changes}
    ins = [f4(comm.size).astype(changes.pop("dtype", "f4"))]
    if name == "AllToAllV":
        return operate(comm, name, ins, **lists, **changes)
    ins += [
        *(ints(*numbers) for numbers in lists.values()),
        np.empty(sum(lists["recv_counts"]), "i1"),
    ]
    return operate(comm, name, ins, **changes)


def linear(comm: collops.Communicator, x: Any = None, weight: Any = None, **fields: Any) -> Any:
    """LinearParallel of x [3, 4] and weight [5, 4], where every rank gathers."""
    ins = [f4(3, 4) if x is None else x, f4(5, 4) if weight is None else weight]
    whole = {"type": 4, "two_dim_tp_info": collops.TwoDimTPInfo(ag_dim=comm.size, rs_dim=1)}
    return operate(comm, "LinearParallel", ins, **{**whole, **fields})


def plain_rows(rank: int, rows: Rows) -> list[tuple[str, float, bool]]:
    """Per row what this rank is told, the seconds until then, and whether all go on."""
    comm = collops.init(timeout_s=patience(20))
    seen = []
    for _, row in rows:
        names = names_of(comm)
        comm.barrier()
        begin = time.monotonic()
        text = told(partial(exec, row.program if rank == 1 else row.right, names))
        seconds = time.monotonic() - begin
        seen.append((text, seconds, comm.all_reduce(np.array([rank, 10])).tolist() == [3, 30]))
    return seen


def of(part: Rows, word: str) -> str:
    """What the section of these rows says behind that word."""
    return part[0][1].words.get(word, "")


# Threads refuse as processes do: one section is enough.
PLAIN = [
    pytest.param(part, threads, id=of(part, "of") + (" threads" if threads else ""))
    for part in sections("plain")
    for threads in (False, True)[: 1 + bool(of(part, "threads"))]
]


@pytest.mark.parametrize(("part", "threads"), PLAIN)
def test_plain(part: Rows, threads: bool) -> None:
    """Rank 1 of 3 refuses its call before anything is sent: the others are told, and all go on."""
    results = run_ranks(plain_rows, 3, part, threads=threads)
    own = results[1]
    assert all(goes_on for result in results for *_, goes_on in result)
    compare([(n, row, "", seen[0]) for (n, row), seen in zip(part, own, strict=True)])
    hear = of(part, "told")
    for rank, result in enumerate(results):
        if rank != 1 and hear in ("all", str(rank)):
            tell_the_others(own, result)
            assert all(seconds < LATE_S for _, seconds, _ in result)
        elif rank != 1:
            assert not any(text for text, *_ in result)


def alone(row: Row) -> str:
    """What the program of a row is told, on a communicator of one rank."""
    with mock.patch.dict(os.environ, row.variables), contextlib.ExitStack() as stack:
        names = {**WORDS, "torch": sys.modules.get("torch")}
        if not row.variables:
            comm = stack.enter_context(collops.init(0, 1, comm_domain="alone"))
            names = names_of(comm)
        return told(partial(exec, row.program, names))


@pytest.mark.parametrize("part", sections("alone"), ids=lambda part: of(part, "of"))
def test_alone(part: Rows) -> None:
    """What needs no other rank: names, the environment, devices, values of other libraries."""
    if of(part, "of") == "torch":
        pytest.importorskip("torch", reason="torch is not installed here")
    compare([(number, row, "", alone(row)) for number, row in part])


def disagree(rank: int, rows: Rows, odd: int) -> list[tuple[str, int, list[str], bool]]:
    """Per row what a rank is told, its process, two later calls, and whether all go on."""
    seen = []
    for number, row in rows:
        comm = collops.init(comm_domain=f"row {number}", timeout_s=patience(20))
        call = partial(exec, row.program if rank == odd else row.right, names_of(comm))
        first, *later = (told(one) for one in (call, comm.barrier, call))
        again = collops.init(comm_domain=f"row {number}", timeout_s=patience(20))
        gathered = again.all_gatherv(np.array([rank])).tolist() == list(range(again.size))
        seen.append((first, os.getpid(), later, gathered))
    return seen


# Each section as often as it has settings of COLLOPS_FUSED.
DISAGREEMENTS = [
    pytest.param(part, fused, id=f"{of(part, 'of')} {fused}".strip())
    for part in sections("disagree")
    for fused in of(part, "COLLOPS_FUSED").split(",")
]


@pytest.mark.parametrize(("part", "fused"), DISAGREEMENTS)
def test_disagreements(part: Rows, fused: str) -> None:
    """All ranks are told the same, with the processes of the ranks that are named."""
    ranks, odd = int(of(part, "ranks")), int(of(part, "odd"))
    env = {"COLLOPS_FUSED": fused} if fused else {}
    results = run_ranks(disagree, ranks, part, odd, env=env)
    found = []
    for number, row in part:
        of_row = [result[number - part[0][0]] for result in results]
        # Each of the ranks may be the one that finds it.
        texts = {re.sub(r" \(reported by rank \d+\)", "", text) for text, *_ in of_row}
        assert len(texts) == 1, f"{row.program}: {texts}"
        [text] = texts
        for rank, (_, pid, later, new) in enumerate(of_row):
            text = text.replace(f"rank {rank} (pid {pid})", f"rank {rank}")
            assert new
            assert all(re.match(r"102 .*this communicator has ended|1 hcclComm", t) for t in later)
        found.append((number, row, "", text))
    compare(found)


def test_every_operator_has_rows() -> None:
    structs = {name for name in dir(collops) if name.endswith("Param")}
    assert {f"{name}Param" for name in RIGHT} == structs
    silent = [
        row.program
        for part in sections("structs")
        for _, row in part
        if "on(" in row.program and not row.said
    ]
    assert not silent, "run cpp_rows.py with COLLOPS_UPDATE_REFUSALS=1"
