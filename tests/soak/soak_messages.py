"""Calls that are more than one collective: messages, started calls, subgroups, refusals."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from collops.golden.data.dtypes import DTYPES

import collops
from tests.linear_case import divisors
from tests.soak.soak_plain import PLAIN, Prepared
from tests.soak.soak_products import LINEAR, PRODUCTS, on_grid
from tests.soak.soak_turn import POISON, Turn, Wrong, bytes_of

TAGS = (0, 1, 7)
# From any rank only with a tag of its own: the sender of a later message may be there already.
FIRST_OWN_TAG = 1000


class Starting:
    """The methods of a communicator, each of which only starts its call."""

    def __init__(self, comm: collops.Communicator) -> None:
        self._comm = comm

    def __getattr__(self, name: str) -> Any:
        return partial(self._comm.start, name)


def fields(turn: Turn) -> dict[str, Any]:
    return {"backend": "shm", "rank": turn.rank, "hccl_comm": turn.comm}


def execute(turn: Turn, param: Any, inputs: list[Any], outputs: list[Any]) -> None:
    """Both phases of a struct's operation."""
    operation = collops.Operation(param)
    size = operation.get_workspace_size(inputs, outputs)
    operation.execute(inputs, outputs, np.full(size, POISON, np.uint8) if size else None)


def simple(turn: Turn, prepare: Callable[[Turn], Prepared]) -> None:
    """One collective call."""
    prepared = prepare(turn)
    turn.pause()
    prepared.judge(prepared.run(turn.comm))
    turn.expect_untouched()


def add_up(turn: Turn, parts: list[Turn]) -> None:
    for part in parts:
        part.expect_untouched()
        turn.moved_bytes += part.moved_bytes
        turn.slept += part.slept


def messages(turn: Turn) -> None:
    """Some messages, one after the other, of either level, some from any rank."""
    parts = [turn.part(number) for number in range(turn.shared.randint(1, 6))]
    if turn.ranks == 1:
        return
    for part in parts:
        source, destination = part.shared.sample(range(turn.ranks), 2)
        dtype, atb = part.shared.choice(DTYPES), part.shared.random() < 0.3
        anyone = not atb and part.shared.random() < 0.2
        tag = part.shared.choice(TAGS)
        tag = FIRST_OWN_TAG + part.shared.randrange(1 << 30) if anyone else tag
        data = part.data(dtype, source, part.elements(dtype))
        part.pause()
        if turn.rank == source:
            x = part.given(data, data.shape, dtype)
            if atb:
                execute(part, collops.SendParam(dest_rank=destination, **fields(turn)), [x], [])
            else:
                turn.comm.send(x, destination, tag)
        elif turn.rank == destination:
            out = part.memory(data.shape, dtype)
            if atb:
                execute(part, collops.RecvParam(src_rank=source, **fields(turn)), [out], [out])
            else:
                turn.comm.recv(out, None if anyone else source, tag)
            part.expect(out, data, dtype)
    add_up(turn, parts)


def drawn_exchange(turn: Turn) -> tuple[list[Any], list[tuple[Any, Any, str]]]:
    """This rank's messages of an exchange, and what its outs must hold: (out, data, dtype)."""
    listed: list[Any] = []
    wanted = []
    for number in range(turn.shared.randint(0, 2 * turn.ranks)):
        source, destination = turn.shared.randrange(turn.ranks), turn.shared.randrange(turn.ranks)
        dtype, tag = turn.shared.choice(DTYPES), turn.shared.choice(TAGS)
        data = turn.data(dtype, source, turn.elements(dtype, 8 << 20), number)
        if turn.rank == source:
            x = turn.given(data, data.shape, dtype)
            listed.append(collops.SendTo(x, destination, tag))
        if turn.rank == destination:
            out = turn.memory(data.shape, dtype)
            listed.append(collops.RecvFrom(out, source, tag))
            wanted.append((out, data, dtype))
    return listed, wanted


def judge_exchange(turn: Turn, wanted: list[tuple[Any, Any, str]]) -> None:
    for out, data, dtype in wanted:
        turn.expect(out, data, dtype)


def exchange(turn: Turn) -> None:
    """Messages of all ranks to all, themselves included, at once."""
    listed, wanted = drawn_exchange(turn)
    turn.pause()
    turn.comm.exchange(listed)
    judge_exchange(turn, wanted)
    turn.expect_untouched()


def started(turn: Turn) -> None:
    """Several calls under way at once, waited for in another order on every rank."""
    parts = [turn.part(number) for number in range(turn.shared.randint(1, 4))]
    begun: list[tuple[Turn, Any, Callable[[Any], None]]] = []
    for part in parts:
        if part.shared.random() < 0.3:
            listed, wanted = drawn_exchange(part)
            handle = turn.comm.start("exchange", listed)
            begun.append((part, handle, lambda got, w=wanted, p=part: judge_exchange(p, w)))
        else:
            name = part.shared.choice(sorted({**PLAIN, **PRODUCTS}))
            prepared = {**PLAIN, **PRODUCTS}[name](part)
            begun.append((part, prepared.run(Starting(turn.comm)), prepared.judge))
        part.pause()
    turn.own.shuffle(begun)
    for _, handle, judge in begun:
        if turn.own.random() < 0.3:
            time.sleep(turn.own.random() * 0.002)
            handle.done()
        judge(handle.wait())
    add_up(turn, parts)


def split(turn: Turn) -> None:
    """Some calls in subgroups of drawn ranks, and ranks that are in none."""
    colors = [turn.shared.choice((None, 0, 0, 1, 1)) for _ in range(turn.ranks)]
    keys = [turn.shared.randrange(3) for _ in range(turn.ranks)]
    turn.pause()
    group = turn.comm.split(colors[turn.rank], keys[turn.rank])
    if group is None:
        return
    with group:
        for number in range(turn.shared.randint(1, 3)):
            part = turn.part(f"{colors[turn.rank]}/{number}", group)
            simple(part, PLAIN[part.shared.choice(sorted(PLAIN))])
            turn.moved_bytes += part.moved_bytes
            turn.slept += part.slept


def refused(turn: Turn) -> None:
    """One rank passes sizes that do not fit: it refuses, all others hear of it, nothing moves."""
    wrong = turn.shared.randrange(turn.ranks)
    rows = [turn.shared.randint(0, 3000) for _ in range(turn.ranks)]
    mine = rows[turn.rank] + (1 if turn.rank == wrong else 0)
    x = turn.given(turn.data("int32", turn.rank, mine), (mine,), "int32")
    out = turn.memory((sum(rows),), "int32")
    before = bytes_of(out).copy()
    turn.pause()
    want = collops.ArgumentError if turn.rank == wrong else collops.RankMismatchError
    try:
        turn.comm.all_gatherv(x, rows, out=out)
    except want:
        pass
    else:
        raise Wrong(f"rank {wrong} passed {mine} rows for {rows}, and no error was raised")
    if (bytes_of(out) != before).any():
        raise Wrong("a refused call has written its output")
    turn.expect_untouched()


def furnish(turn: Turn) -> None:
    """All that a communicator makes at its first use and keeps: a queue, rings, subgroups.

    So that what a process holds does not depend on which calls were drawn.
    """
    turn.comm.start("barrier").wait()
    bytes_ = [turn.data("uint8", rank, 1 << 20) for rank in range(turn.ranks)]
    others = [rank for rank in range(turn.ranks) if rank != turn.rank]
    mine = bytes_[turn.rank].copy()
    listed: list[Any] = [collops.SendTo(mine, rank) for rank in others]
    turn.comm.exchange([*listed, *(collops.RecvFrom(bytes_[r].copy(), r) for r in others)])
    for ag_dim in divisors(turn.ranks):
        for inner in (False, True):
            simple(turn, partial(on_grid, ag_dim=ag_dim, inner_dim_is_ag=inner))


SEVERAL: dict[str, Callable[[Turn], None]] = {
    "send, recv": messages,
    "exchange": exchange,
    "started": started,
    "split": split,
    "refused": refused,
}
OneTable = dict[str, Callable[[Turn], None]]


def kinds() -> tuple[OneTable, dict[str, int]]:
    """Every kind of call, and how often it is drawn."""
    table: OneTable = {}
    for one in (PLAIN, PRODUCTS, LINEAR):
        for name, prepare in one.items():
            table[name] = partial(simple, prepare=prepare)
    weights = dict.fromkeys(table, 3) | {"LinearParallel": 5}
    table |= SEVERAL
    weights |= {"send, recv": 8, "exchange": 6, "started": 12, "split": 3, "refused": 3}
    return table, weights
