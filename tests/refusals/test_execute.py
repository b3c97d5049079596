"""A rank whose execute or forward fails its own check: it gets its error, the others its message.

Each row runs on running ranks: rank 1 has the fault, and the calls after it work for all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from right_calls import EXCHANGES, LINEAR, RIGHT, V, outcome

import collops
from collops.testing import run_ranks

RANKS = {**dict.fromkeys((*V, "LinearParallel"), 2), **dict.fromkeys(EXCHANGES, 3)}


def v_tensors(name: str, rank: int) -> tuple[list[Any], tuple[int, ...]]:
    x = np.arange(8, dtype=np.float32).reshape(2, 4) + 10 * rank
    counts = np.array([3, 4] if name == "AllGatherV" else [4, 4])
    own, displs = counts[rank : rank + 1], np.array([0, 4])
    y = np.empty(2 if name == "AllGatherV" else 1, np.float16)
    middle = [own, counts, displs] if name == "AllGatherV" else [counts, displs, own]
    return [x, *(numbers.copy() for numbers in middle), y], (len(y), 4)


def lists(rank: int) -> dict[str, list[int]]:
    """Every rank of 3 sends rank q q + 1 elements."""
    own = rank + 1
    return {
        "send_counts": [1, 2, 3],
        "sdispls": [0, 0, 0],
        "recv_counts": [own] * 3,
        "rdispls": [0, own, 2 * own],
    }


def right_tensors(name: str, rank: int) -> tuple[list[Any], tuple[int, ...]]:
    """The inputs of a rank, and the shape of its output."""
    if name in V:
        return v_tensors(name, rank)
    if name == "LinearParallel":
        x, weight, residual = RIGHT[name].inputs()
        return [x + 100 * rank, weight - rank, residual], (6, 5)
    ins: list[Any] = [(np.arange(3) + 10 * rank).astype(np.float32)]
    received = 3 * (rank + 1)
    if name == "AllToAllVV2":
        ins += [*(np.array(numbers) for numbers in lists(rank).values()), np.empty(received, "i1")]
    return ins, (1, received)


def right_result(name: str, rank: int) -> list[Any]:
    if name == "AllGatherV":
        return [[0, 1, 2, 0], [10, 11, 12, 13]]
    if name == "ReduceScatterV":
        return [[[10, 12, 14, 16]], [[18, 20, 22, 24]]][rank]
    if name == "LinearParallel":
        x = np.concatenate([right_tensors(name, r)[0][0] for r in range(2)])
        return list((x @ right_tensors(name, rank)[0][1].T + 1).tolist())
    return [[10 * sender + i for sender in range(3) for i in range(rank + 1)]]


class Call:
    """A right call of a rank, and the operation that has planned it."""

    def __init__(self, name: str, rank: int) -> None:
        self.name, self.rank = name, rank
        self.op = self.operation()
        self.ins, shape = right_tensors(name, rank)
        self.outs: list[Any] = [np.full(shape, -1, np.float32)]
        size = self.op.get_workspace_size(self.ins, self.outs)
        self.workspace = np.empty(size, np.uint8) if size else None

    def operation(self) -> collops.Operation:
        right = RIGHT[self.name]
        own = lists(self.rank) if self.name == "AllToAllV" else right.fields
        size = RANKS[self.name]
        return collops.Operation(
            right.struct(**{**own, "rank": self.rank, "rank_size": size, "backend": "shm"})
        )

    def execute(self, **changed: Any) -> Any:
        words = {"workspace": self.workspace, "stream": None, **changed}
        self.op.execute(self.ins, self.outs, words["workspace"], words["stream"])
        return self.outs[0].tolist()

    def forward(self) -> Any:
        return self.op.forward(self.ins)[0].tolist()


def use(position: int, value: Callable[[Any], Any], how: str = "execute") -> Callable[[Call], Any]:
    """Runs the call with an input made from the right one; the output is number -1."""

    def run(call: Call) -> Any:
        tensors = call.ins if position >= 0 else call.outs
        tensors[position] = value(tensors[position])
        return getattr(call, how)()

    return run


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def planless(call: Call) -> Any:
    call.op = call.operation()
    return call.execute()


def onto_x(call: Call) -> Any:
    call.ins[0] = x = np.zeros(12, np.float32)[:8].reshape(2, 4)
    call.outs[0] = x[: len(call.outs[0])]
    return call.execute()


def changed(index: int, value: int) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array[index] = value
        return array

    return change


LINEAR_ONLY = ("LinearParallel",)
# Operators, what rank 1 does, its code, and a part of its message.
Row = tuple[tuple[str, ...], str, Callable[[Call], Any], int, str]
ROWS: list[Row] = [
    (V, "no plan", planless, 1, "no plan yet: run the first phase"),
    (V, "other shape", use(0, lambda x: x.reshape(4, 2)), 1, "shapes and dtypes of these tensors"),
    (V, "other dtype", use(0, lambda x: x.astype("i4")), 1, "shapes and dtypes of these tensors"),
    (V, "other output", use(-1, lambda x: x.reshape(-1)), 1, "shapes and dtypes of these tensors"),
    (V, "other counts", use(2, changed(0, 2)), 1, "but no plan has it"),
    (V, "fewer inputs", lambda call: call.op.execute(call.ins[:4], call.outs), 1, "no plan has"),
    (V, "output on x", onto_x, 14, "the output overlaps x in memory"),
    (V, "read-only", use(-1, read_only), 14, "the output is read-only"),
    (V, "strided x", use(0, lambda x: x.repeat(2, 1)[:, ::2]), 14, "x is not contiguous"),
    (V, "strided out", use(-1, lambda x: x.repeat(2, 1)[:, ::2]), 14, "output is not contiguous"),
    (V, "strided counts", use(2, lambda x: x.repeat(2)[::2]), 14, "is not contiguous"),
    (V, "byte order", use(0, lambda x: x.astype(">f4")), 14, "this machine's byte order"),
    (V, "no address", use(0, lambda x: collops.TensorDesc(x.shape, x.dtype)), 14, "has no address"),
    (
        V,
        "no tensor",
        use(0, lambda x: x.tolist()),
        1,
        "input 0 (x): a numpy array, a torch tenso",
    ),
    (V, "no output", use(-1, lambda x: None), 1, "output 0: a numpy array, a torch tensor or"),
    (V, "workspace", lambda call: call.execute(workspace=[1]), 1, "workspace: a numpy array"),
    (
        V,
        "strided workspace",
        lambda call: call.execute(workspace=np.zeros(8)[::2]),
        23,
        "the workspace must be contiguous and writable",
    ),
    (V, "stream", lambda call: call.execute(stream="s"), 21, "stream must be None, a number or"),
    (V, "forward: dtype", use(0, lambda x: x.astype("u2"), "forward"), 13, "x is uint16"),
    (V, "forward: inputs", use(4, lambda y: y[:0].reshape(0, 0), "forward"), 9, "y has size 0"),
    (V, "forward: counts", use(2, changed(1, -4), "forward"), 1, "[1]"),
    (V, "forward: no tensor", use(3, lambda x: 3, "forward"), 1, "input 3 ("),
    (V, "forward: order", use(0, lambda x: x.astype(">f4"), "forward"), 14, "byte order"),
    (EXCHANGES, "no plan", planless, 1, "no plan yet: run the first phase"),
    (LINEAR_ONLY, "other shape", use(0, lambda x: x[:2]), 1, "no plan has the shapes"),
    (
        LINEAR_ONLY,
        "no workspace",
        lambda call: call.execute(workspace=None),
        22,
        "the workspace has 0 bytes, the call needs",
    ),
    (
        LINEAR_ONLY,
        "forward: dtype",
        use(0, lambda x: x.astype("f8"), "forward"),
        13,
        "x is float64",
    ),
]


NODES = [(name, label) for names, label, *_ in ROWS for name in names]


def wrong_calls(rank: int, name: str) -> dict[str, list[tuple[int, str, Any]]]:
    """Per row: the call in which rank 1 has a fault, and the next ones."""
    heard = {}
    for names, label, run, _, _ in ROWS:
        if name in names:
            faulty = Call(name, rank)
            wrong = outcome(partial(run if rank == 1 else Call.execute, faulty))
            after = [outcome(Call(name, rank).execute), outcome(Call(name, rank).forward)]
            heard[label] = [wrong, *after]
    return heard


@cache
def results_of(name: str) -> list[dict[str, list[tuple[int, str, Any]]]]:
    return run_ranks(wrong_calls, RANKS[name], name)


@pytest.mark.parametrize(("name", "label"), NODES)
def test_the_rank_with_the_fault_refuses_and_the_others_hear_of_it(name: str, label: str) -> None:
    [(code, message)] = [row[3:] for row in ROWS if name in row[0] and label == row[1]]
    heard = [result[label][0] for result in results_of(name)]
    own_code, own_message, _ = heard.pop(1)
    assert (own_code, message in own_message) == (code, True), own_message
    assert own_message.startswith(f"{name}: ")
    for other_code, other_message, _ in heard:
        assert other_code == 102
        assert other_message.startswith(f"{name}: rank 1 ")
        assert own_message[:100] in other_message


@pytest.mark.parametrize(("name", "label"), NODES)
def test_the_next_calls_work(name: str, label: str) -> None:
    for rank, result in enumerate(results_of(name)):
        assert result[label][1:] == [(0, "", right_result(name, rank))] * 2


def pure_linear(rank: int) -> tuple[int, Any]:
    right = RIGHT["LinearParallel"]
    fields = {**LINEAR, "type": collops.ParallelType.PURE_LINEAR}
    op = collops.Operation(right.struct(rank=rank, rank_size=2, backend="shm", **fields))
    ins, _ = right_tensors("LinearParallel", rank)
    outs = [np.empty((3, 5), np.float32)]
    short = [ins[0][:2], *ins[1:]]
    code = outcome(lambda: op.execute(short, outs))[0] if rank == 1 else 0
    return code, op.forward(ins)[0].tolist()


def test_the_type_without_communication_refuses_for_itself() -> None:
    for rank, (code, after) in enumerate(run_ranks(pure_linear, 2)):
        x, weight, residual = right_tensors("LinearParallel", rank)[0]
        assert code == rank
        assert after == (x @ weight.T + residual).tolist()
