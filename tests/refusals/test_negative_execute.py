"""A rank whose execute or forward fails its own check: it gets its error, the others its message.

Each case runs on two living ranks: rank 1 has the fault, and the call after it works for both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

PARAMS = {
    "AllGatherV": collops.AllGatherVParam,
    "ReduceScatterV": collops.ReduceScatterVParam,
}


class Call:
    """A right call of rank `rank` of 2, and the operation that has planned it."""

    def __init__(self, name: str, rank: int) -> None:
        self.rank = rank
        self.op = collops.Operation(PARAMS[name](rank=rank, rank_size=2, backend="shm"))
        self.x = np.arange(8, dtype=np.float32).reshape(2, 4) + 10 * rank
        counts = np.array([3, 4] if name == "AllGatherV" else [4, 4])
        own, displs = counts[rank : rank + 1], np.array([0, 4])
        y = np.empty(2 if name == "AllGatherV" else 1, np.float16)
        middle = [own, counts, displs] if name == "AllGatherV" else [counts, displs, own]
        self.ins: list[Any] = [self.x, *(array.copy() for array in middle), y]
        self.outs: list[Any] = [np.full((len(y), 4), -1, np.float32)]
        self.op.get_workspace_size(self.ins, self.outs)

    def execute(self, workspace: Any = None, stream: Any = None) -> Any:
        self.op.execute(self.ins, self.outs, workspace, stream)
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
    name = call.op.name
    call.op = collops.Operation(PARAMS[name](rank=call.rank, rank_size=2, backend="shm"))
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


CASES: list[tuple[str, Callable[[Call], Any], int, str]] = [
    ("no plan", planless, 1, "call get_workspace_size with them first"),
    ("other shape", use(0, lambda x: x.reshape(4, 2)), 1, "shapes and dtypes of these tensors"),
    ("other dtype", use(0, lambda x: x.astype("i4")), 1, "shapes and dtypes of these tensors"),
    ("other output", use(-1, lambda x: x.reshape(-1)), 1, "shapes and dtypes of these tensors"),
    ("other counts", use(2, changed(0, 2)), 1, "but no kept plan has it"),
    ("fewer inputs", lambda call: call.op.execute(call.ins[:4], call.outs), 1, "none of the"),
    ("output on x", onto_x, 14, "the output overlaps x in memory"),
    ("read-only", use(-1, read_only), 14, "the output is read-only"),
    ("strided x", use(0, lambda x: x.repeat(2, 1)[:, ::2]), 14, "x is not contiguous"),
    ("strided out", use(-1, lambda x: x.repeat(2, 1)[:, ::2]), 14, "output is not contiguous"),
    ("strided counts", use(2, lambda x: x.repeat(2)[::2]), 14, "is not contiguous"),
    ("byte order", use(0, lambda x: x.astype(">f4")), 14, "this machine's byte order"),
    ("no address", use(0, lambda x: collops.TensorDesc(x.shape, x.dtype)), 14, "has no address"),
    ("no tensor", use(0, lambda x: x.tolist()), 1, "input 0 (x): a numpy array, a torch tensor or"),
    ("no output", use(-1, lambda x: None), 1, "output 0: a numpy array, a torch tensor or"),
    ("workspace", lambda call: call.execute(workspace=[1]), 1, "workspace: a numpy array"),
    (
        "strided workspace",
        lambda call: call.execute(workspace=np.zeros(8)[::2]),
        23,
        "the workspace must be contiguous and writable",
    ),
    ("stream", lambda call: call.execute(stream="s"), 21, "stream must be None, a number or"),
    ("forward: dtype", use(0, lambda x: x.astype("u2"), "forward"), 13, "x is uint16"),
    ("forward: inputs", use(4, lambda y: y[:0].reshape(0, 0), "forward"), 9, "y has size 0"),
    ("forward: counts", use(2, changed(1, -4), "forward"), 1, "[1]"),
    ("forward: no tensor", use(3, lambda x: 3, "forward"), 1, "input 3 ("),
    ("forward: order", use(0, lambda x: x.astype(">f4"), "forward"), 14, "byte order"),
]
names = [name for name, *_ in CASES]


def outcome(run: Callable[[], Any]) -> tuple[int, str, Any]:
    try:
        return 0, "", run()
    except collops.Error as error:
        return error.code, error.message, None


def all_cases(rank: int, name: str) -> dict[str, list[tuple[int, str, Any]]]:
    """Per case: the call in which rank 1 has a fault, and the next one."""
    results = {}
    for case, run, _, _ in CASES:
        faulty = Call(name, rank)
        wrong = outcome(partial(run if rank == 1 else Call.execute, faulty))
        results[case] = [
            wrong,
            outcome(Call(name, rank).execute),
            outcome(Call(name, rank).forward),
        ]
    return results


@pytest.fixture(scope="module", params=PARAMS)
def ran(request: pytest.FixtureRequest) -> tuple[str, list[Any]]:
    return request.param, run_ranks(all_cases, 2, request.param)


@pytest.mark.parametrize(
    ("case", "code", "message"), [(n, c, m) for n, _, c, m in CASES], ids=names
)
def test_the_rank_with_the_fault_gets_its_own_error(
    ran: tuple[str, list[Any]], case: str, code: int, message: str
) -> None:
    name, results = ran
    got_code, got_message, _ = results[1][case][0]
    assert (got_code, message in got_message) == (code, True), got_message
    assert got_message.startswith(f"{name}: ")


@pytest.mark.parametrize("case", names)
def test_the_other_rank_gets_its_message(ran: tuple[str, list[Any]], case: str) -> None:
    name, results = ran
    code, message, _ = results[0][case][0]
    own = results[1][case][0][1]
    assert code == 102
    assert message.startswith(f"{name}: rank 1 ")
    assert own[:100] in message


WANT = {
    "AllGatherV": [[[0, 1, 2, 0], [10, 11, 12, 13]]] * 2,
    "ReduceScatterV": [[[10, 12, 14, 16]], [[18, 20, 22, 24]]],
}


@pytest.mark.parametrize("case", names)
def test_the_next_calls_work(ran: tuple[str, list[Any]], case: str) -> None:
    name, results = ran
    for rank in range(2):
        assert [entry[0] for entry in results[rank][case][1:]] == [0, 0], results[rank][case]
        assert [entry[2] for entry in results[rank][case][1:]] == [WANT[name][rank]] * 2
