"""The collectives of the plain level, drawn: each may be called, started, or made in a subgroup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from collops.golden.data.dtypes import DTYPES, REDUCE_DTYPES
from collops.golden.data.reduction import REDUCE_OPS, has_reduction, reduce_ranks

from tests.soak.soak_turn import Turn


class Prepared(NamedTuple):
    """A call with its tensors: `run` makes it, on a communicator or a queue; `judge` its result."""

    run: Callable[[Any], Any]
    judge: Callable[[Any], None]


def begins(numbers: list[int]) -> list[int]:
    return [sum(numbers[:at]) for at in range(len(numbers))]


def drawn_op(turn: Turn, dtype: str, ops: tuple[str, ...] = REDUCE_OPS) -> str:
    return turn.shared.choice([op for op in ops if has_reduction(op, dtype)])


def joined(turn: Turn, dtype: str, counts: list[int]) -> Any:
    return np.concatenate([turn.data(dtype, rank, count) for rank, count in enumerate(counts)])


def all_gather(turn: Turn) -> Prepared:
    dtype = turn.shared.choice(DTYPES)
    count = turn.elements(dtype) // turn.ranks
    width = turn.width(count)
    rows = count // width
    x = turn.given(turn.data(dtype, turn.rank, rows * width), (rows, width), dtype)
    out = turn.memory((rows * turn.ranks, width), dtype)
    want = joined(turn, dtype, [rows * width] * turn.ranks)
    return Prepared(
        lambda calls: calls.all_gather(x, out=out), lambda got: turn.expect(got, want, dtype)
    )


def all_gather_v(turn: Turn) -> Prepared:
    dtype = turn.shared.choice(DTYPES)
    count = turn.elements(dtype)
    width = turn.width(count)
    rows = turn.parts(count // width)
    sizes = rows if turn.shared.random() < 0.7 else None
    mine = turn.data(dtype, turn.rank, rows[turn.rank] * width)
    if turn.shared.random() < 0.2 and count < 1 << 20:
        return moved_gather(turn, dtype, width, rows, mine)
    x = turn.given(mine, (rows[turn.rank], width), dtype)
    out = turn.memory((sum(rows), width), dtype) if turn.shared.random() < 0.8 else None

    def judge(got: Any) -> None:
        turn.expect(got, joined(turn, dtype, [n * width for n in rows]), dtype)

    return Prepared(lambda calls: calls.all_gatherv(x, sizes, out=out), judge)


def moved_gather(turn: Turn, dtype: str, width: int, rows: list[int], mine: Any) -> Prepared:
    """Along the last dim, so that blocks are not contiguous in the output."""
    x = turn.given(mine, (width, rows[turn.rank]), dtype)

    def judge(got: Any) -> None:
        blocks = [
            turn.data(dtype, rank, n * width).reshape(width, n) for rank, n in enumerate(rows)
        ]
        turn.expect(got, np.concatenate(blocks, axis=1), dtype)

    return Prepared(lambda calls: calls.all_gatherv(x, rows, -1), judge)


def all_reduce(turn: Turn) -> Prepared:
    dtype = turn.shared.choice(REDUCE_DTYPES)
    op, count = drawn_op(turn, dtype), turn.elements(dtype)
    x = turn.given(turn.data(dtype, turn.rank, count), (count,), dtype)
    how = turn.shared.choice(("new", "out", "in place"))
    out = None
    if how == "out":
        out = turn.memory((count,), dtype)
    elif how == "in place":
        out = x
        turn.changes(x)

    def judge(got: Any) -> None:
        xs = [turn.data(dtype, rank, count) for rank in range(turn.ranks)]
        turn.expect(got, reduce_ranks(xs, op, dtype), dtype, reduces=True)

    return Prepared(lambda calls: calls.all_reduce(x, op, out=out), judge)


def reduced_slice(turn: Turn, dtype: str, op: str, total: int, begin: int, count: int) -> Any:
    xs = [turn.data(dtype, rank, total)[begin : begin + count] for rank in range(turn.ranks)]
    return reduce_ranks(xs, op, dtype)


def reduce_scatter(turn: Turn) -> Prepared:
    dtype = turn.shared.choice(REDUCE_DTYPES)
    op, count = drawn_op(turn, dtype), turn.elements(dtype) // turn.ranks
    total = count * turn.ranks
    x = turn.given(turn.data(dtype, turn.rank, total), (total,), dtype)
    out = turn.memory((count,), dtype)

    def judge(got: Any) -> None:
        want = reduced_slice(turn, dtype, op, total, turn.rank * count, count)
        turn.expect(got, want, dtype, reduces=True)

    return Prepared(lambda calls: calls.reduce_scatter(x, op, out=out), judge)


def reduce_scatter_v(turn: Turn) -> Prepared:
    dtype = turn.shared.choice(REDUCE_DTYPES)
    op, count = drawn_op(turn, dtype), turn.elements(dtype)
    width = turn.width(count)
    rows = turn.parts(count // width)
    x = turn.given(turn.data(dtype, turn.rank, sum(rows) * width), (sum(rows), width), dtype)
    out = turn.memory((rows[turn.rank], width), dtype)

    def judge(got: Any) -> None:
        begin = begins(rows)[turn.rank] * width
        want = reduced_slice(turn, dtype, op, sum(rows) * width, begin, rows[turn.rank] * width)
        turn.expect(got, want, dtype, reduces=True)

    return Prepared(lambda calls: calls.reduce_scatterv(x, rows, 0, op, out), judge)


def broadcast(turn: Turn) -> Prepared:
    dtype = turn.shared.choice(DTYPES)
    count, root = turn.elements(dtype), turn.shared.randrange(turn.ranks)
    data = turn.data(dtype, root, count)
    if turn.rank == root:
        x = turn.given(data, (count,), dtype)
    else:
        x = turn.memory((count,), dtype)
    return Prepared(lambda calls: calls.broadcast(x, root), lambda got: turn.expect(x, data, dtype))


def all_to_all_v(turn: Turn) -> Prepared:
    dtype = turn.shared.choice(DTYPES)
    count = turn.elements(dtype)
    width = turn.width(count)
    table = [
        turn.parts(turn.shared.choice((0, 1, 1)) * (count // width)) for _ in range(turn.ranks)
    ]
    sends, receives = table[turn.rank], [line[turn.rank] for line in table]
    x = turn.given(turn.data(dtype, turn.rank, sum(sends) * width), (sum(sends), width), dtype)
    out = turn.memory((sum(receives), width), dtype)
    told = receives if turn.shared.random() < 0.7 else None

    def judge(got: Any) -> None:
        slices = []
        for rank, line in enumerate(table):
            begin = sum(line[: turn.rank]) * width
            whole = turn.data(dtype, rank, sum(line) * width)
            slices.append(whole[begin : begin + line[turn.rank] * width])
        turn.expect(got, np.concatenate(slices), dtype)

    return Prepared(lambda calls: calls.all_to_allv(x, sends, told, out), judge)


def gather_v(turn: Turn) -> Prepared:
    dtype = turn.shared.choice(DTYPES)
    rows, root = turn.parts(turn.elements(dtype)), turn.shared.randrange(turn.ranks)
    sizes = rows if turn.shared.random() < 0.7 else None
    x = turn.given(turn.data(dtype, turn.rank, rows[turn.rank]), (rows[turn.rank],), dtype)

    def judge(got: Any) -> None:
        if turn.rank == root:
            turn.expect(got, joined(turn, dtype, rows), dtype)

    return Prepared(lambda calls: calls.gatherv(x, sizes, root), judge)


def scatter_v(turn: Turn) -> Prepared:
    dtype = turn.shared.choice(DTYPES)
    rows, root = turn.parts(turn.elements(dtype)), turn.shared.randrange(turn.ranks)
    data = turn.data(dtype, root, sum(rows))
    x = turn.given(data, (sum(rows),), dtype) if turn.rank == root else None

    def judge(got: Any) -> None:
        begin = begins(rows)[turn.rank]
        turn.expect(got, data[begin : begin + rows[turn.rank]], dtype)

    return Prepared(lambda calls: calls.scatterv(x, rows, root), judge)


def reduce(turn: Turn) -> Prepared:
    dtype = turn.shared.choice(REDUCE_DTYPES)
    op, count = drawn_op(turn, dtype), turn.elements(dtype)
    root = turn.shared.randrange(turn.ranks)
    x = turn.given(turn.data(dtype, turn.rank, count), (count,), dtype)

    def judge(got: Any) -> None:
        if turn.rank == root:
            want = reduced_slice(turn, dtype, op, count, 0, count)
            turn.expect(got, want, dtype, reduces=True)

    return Prepared(lambda calls: calls.reduce(x, op, root), judge)


def barrier(turn: Turn) -> Prepared:
    return Prepared(lambda calls: calls.barrier(), lambda got: None)


PLAIN: dict[str, Callable[[Turn], Prepared]] = {
    "all_gather": all_gather,
    "all_gatherv": all_gather_v,
    "all_reduce": all_reduce,
    "reduce_scatter": reduce_scatter,
    "reduce_scatterv": reduce_scatter_v,
    "broadcast": broadcast,
    "all_to_allv": all_to_all_v,
    "gatherv": gather_v,
    "scatterv": scatter_v,
    "reduce": reduce,
    "barrier": barrier,
}
