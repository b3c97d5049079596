"""The operators of the ATB level, drawn: counts that cut rows, blocks in any order, gaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from collops.golden.data.dtypes import DTYPES, REDUCE_DTYPES
from collops.golden.data.exchange import exchange
from collops.golden.data.reduction import ATB_REDUCE_OPS, reduce_ranks
from collops.golden.operators.all_gather_v import all_gather_v as golden_all_gather_v
from collops.golden.operators.all_to_all import all_to_all as golden_all_to_all
from collops.golden.operators.all_to_all_v import all_to_all_v as golden_all_to_all_v

import collops
from tests.soak.soak_plain import Prepared, begins, drawn_op, joined
from tests.soak.soak_turn import POISON, Turn, bytes_of

REDUCTIONS = (*ATB_REDUCE_OPS, "prod")


def fields(turn: Turn) -> dict[str, Any]:
    return {"backend": "shm", "rank": turn.rank, "hccl_comm": turn.comm}


def numbers(values: list[int]) -> Any:
    return np.array(values, np.int64)


def execute(turn: Turn, param: Any, inputs: list[Any], outputs: list[Any]) -> Any:
    """Both phases; the first output, or the tensor that changes in place."""
    operation = collops.Operation(param)
    size = operation.get_workspace_size(inputs, outputs)
    operation.execute(inputs, outputs, np.full(size, POISON, np.uint8) if size else None)
    return outputs[0] if outputs else inputs[0]


def prepared(
    turn: Turn,
    param: Any,
    inputs: list[Any],
    outputs: list[Any],
    want: Callable[[], Any],
    dtype: str,
    reduces: bool = False,
) -> Prepared:
    def judge(got: Any) -> None:
        turn.expect(got, want(), dtype, reduces)

    return Prepared(lambda calls: execute(turn, param, inputs, outputs), judge)


def rows_for(count: int, width: int) -> int:
    return -(-count // width)


def atb_all_gather_v(turn: Turn) -> Prepared:
    dtype = turn.shared.choice(DTYPES)
    count = turn.elements(dtype) + 1
    width, counts = turn.width(count), turn.parts(count)
    extra = [turn.shared.randrange(2) for _ in counts]
    displs, end = [0] * turn.ranks, 0
    for rank in turn.shared.sample(range(turn.ranks), turn.ranks):
        displs[rank] = end + turn.shared.choice((0, 0, 5))
        end = displs[rank] + counts[rank]
    rows = rows_for(end, width) + turn.shared.randrange(2)
    heights = [rows_for(n, width) + more for n, more in zip(counts, extra, strict=True)]
    xs = [turn.data(dtype, rank, n * width).reshape(n, width) for rank, n in enumerate(heights)]
    x = turn.given(xs[turn.rank], xs[turn.rank].shape, dtype)
    inputs = [x, numbers([counts[turn.rank]]), numbers(counts), numbers(displs)]
    inputs.append(np.empty(rows, np.float16))
    return prepared(
        turn,
        collops.AllGatherVParam(**fields(turn)),
        inputs,
        [turn.memory((rows, width), dtype)],
        lambda: golden_all_gather_v(xs, counts, displs, rows),
        dtype,
    )


def atb_reduce_scatter_v(turn: Turn) -> Prepared:
    dtype, op = turn.shared.choice(REDUCE_DTYPES), turn.shared.choice(ATB_REDUCE_OPS)
    count = turn.elements(dtype) + 1
    width = turn.width(count)
    shape = (rows_for(count, width), width)
    total = shape[0] * width
    counts = turn.parts(count)
    displs = begins(counts)
    if turn.shared.random() < 0.3:  # slices may overlap
        displs = [turn.shared.randint(0, total - n) for n in counts]
    rows = rows_for(counts[turn.rank], width) + turn.shared.randrange(2)
    x = turn.given(turn.data(dtype, turn.rank, total), shape, dtype)
    inputs = [x, numbers(counts), numbers(displs), numbers([counts[turn.rank]])]
    inputs.append(np.empty(rows, np.float16))

    def want() -> Any:
        begin, mine = displs[turn.rank], counts[turn.rank]
        xs = [turn.data(dtype, rank, total)[begin : begin + mine] for rank in range(turn.ranks)]
        whole = np.zeros(rows * width, xs[0].dtype)
        whole[:mine] = reduce_ranks(xs, op, dtype)
        return whole

    param = collops.ReduceScatterVParam(reduce_type=op, **fields(turn))
    out = turn.memory((rows, width), dtype)
    return prepared(turn, param, inputs, [out], want, dtype, reduces=True)


def atb_all_gather(turn: Turn) -> Prepared:
    dtype = turn.shared.choice(DTYPES)
    count = turn.elements(dtype) // turn.ranks + 1
    x = turn.given(turn.data(dtype, turn.rank, count), (count,), dtype)
    out = turn.memory((turn.ranks, count), dtype)
    param = collops.AllGatherParam(**fields(turn))
    want = joined(turn, dtype, [count] * turn.ranks)
    return prepared(turn, param, [x], [out], lambda: want, dtype)


def atb_reduction(turn: Turn, scatters: bool) -> Prepared:
    dtype = turn.shared.choice(REDUCE_DTYPES)
    op = drawn_op(turn, dtype, REDUCTIONS)
    count = turn.elements(dtype) // turn.ranks + 1
    total = count * turn.ranks
    x = turn.given(turn.data(dtype, turn.rank, total), (total,), dtype)
    begin, mine = (turn.rank * count, count) if scatters else (0, total)

    def want() -> Any:
        xs = [turn.data(dtype, rank, total)[begin : begin + mine] for rank in range(turn.ranks)]
        return reduce_ranks(xs, op, dtype)

    param: Any
    if scatters:
        param = collops.ReduceScatterParam(reduce_type=op, **fields(turn))
    else:
        param = collops.AllReduceParam(all_reduce_type=op, **fields(turn))
    return prepared(turn, param, [x], [turn.memory((mine,), dtype)], want, dtype, reduces=True)


def atb_broadcast(turn: Turn) -> Prepared:
    dtype, root = turn.shared.choice(DTYPES), turn.shared.randrange(turn.ranks)
    count = turn.elements(dtype)
    data = turn.data(dtype, root, count)
    x = turn.memory((count,), dtype)
    if turn.rank == root:
        bytes_of(x)[...] = bytes_of(data)
    param = collops.BroadcastParam(rank_root=root, **fields(turn))
    return prepared(turn, param, [x], [], lambda: data, dtype)


def atb_all_to_all(turn: Turn) -> Prepared:
    transpose = turn.shared.random() < 0.4
    dtype = turn.shared.choice(DTYPES)
    height = turn.shared.choice((1, 2, 5))
    columns = turn.elements(dtype, 1 << 22) // (height * turn.ranks) * turn.ranks + turn.ranks
    shape = (height, columns)
    xs = [turn.data(dtype, rank, height * columns).reshape(shape) for rank in range(turn.ranks)]
    x = turn.given(xs[turn.rank], shape, dtype)
    out = (height * turn.ranks, columns // turn.ranks) if transpose else shape
    param = collops.AllToAllParam(transpose=transpose, **fields(turn))
    return prepared(
        turn,
        param,
        [x],
        [turn.memory(out, dtype)],
        lambda: golden_all_to_all(xs, transpose=transpose)[turn.rank],
        dtype,
    )


def atb_all_to_all_v(turn: Turn, lists_as_inputs: bool) -> Prepared:
    dtype = turn.shared.choice(DTYPES)
    count = turn.elements(dtype, 16 << 20)
    table = [turn.parts(turn.shared.choice((0, 1)) * count) for _ in range(turn.ranks)]
    for rank in range(turn.ranks):  # ATB has no rank that receives nothing
        table[rank][rank] += 1
    table[0] = [n + 1 for n in table[0]]
    call = exchange(table)
    xs = [turn.data(dtype, rank, sum(line)) for rank, line in enumerate(table)]
    x = turn.given(xs[turn.rank], xs[turn.rank].shape, dtype)
    lists = call.lists(turn.rank)
    length = call.lengths[turn.rank]
    inputs, param = [x], None
    if lists_as_inputs:
        inputs += [numbers(values) for values in lists.values()] + [np.empty(length, np.int8)]
        param = collops.AllToAllVV2Param(**fields(turn))
    else:
        names = {"sendCounts": "send_counts", "recvCounts": "recv_counts"}
        own: dict[str, Any] = {names.get(name, name): values for name, values in lists.items()}
        param = collops.AllToAllVParam(**fields(turn), **own)
    return prepared(
        turn,
        param,
        inputs,
        [turn.memory((1, length), dtype)],
        lambda: golden_all_to_all_v(xs, call)[turn.rank],
        dtype,
    )


ATB: dict[str, Callable[[Turn], Prepared]] = {
    "AllGatherV": atb_all_gather_v,
    "ReduceScatterV": atb_reduce_scatter_v,
    "AllGather": atb_all_gather,
    "ReduceScatter": lambda turn: atb_reduction(turn, scatters=True),
    "AllReduce": lambda turn: atb_reduction(turn, scatters=False),
    "Broadcast": atb_broadcast,
    "AllToAll": atb_all_to_all,
    "AllToAllV": lambda turn: atb_all_to_all_v(turn, lists_as_inputs=False),
    "AllToAllVV2": lambda turn: atb_all_to_all_v(turn, lists_as_inputs=True),
}
