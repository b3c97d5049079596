"""What infer_shape and get_workspace_size refuse: both are local, code and message per line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import collops
from collops import TensorDesc as Desc

Tensors = list[Any]


def operation(name: str) -> collops.Operation:
    """Rank 0 of 2."""
    fields = {"rank": 0, "rank_size": 2, "backend": "shm", "comm_domain": name}
    struct = collops.AllGatherVParam if name == "AllGatherV" else collops.ReduceScatterVParam
    return collops.Operation(struct(**fields))  # type: ignore[arg-type]


def tensors(name: str) -> tuple[Tensors, Tensors]:
    """A right call: 3 of 8 elements here and 4 there (gather), 6 and 2 of 8 (scatter)."""
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    if name == "AllGatherV":
        ins = [x, [3], [3, 4], [0, 4], 2]
    else:
        ins = [x, [6, 2], [0, 6], [6], 2]
    counts = [np.array(values, np.int64) for values in ins[1:4]]
    return [x, *counts, np.empty(2, np.float16)], [np.empty((2, 4), np.float32)]


Change = Callable[[Tensors, Tensors], None]


def put(position: int, value: Any) -> Change:
    """Replaces an input."""

    def change(ins: Tensors, outs: Tensors) -> None:
        ins[position] = value

    return change


def put_out(value: Any) -> Change:
    """Replaces the output."""

    def change(ins: Tensors, outs: Tensors) -> None:
        outs[:] = [value]

    return change


def drop(ins: Tensors, outs: Tensors) -> None:
    ins.pop()


def add(ins: Tensors, outs: Tensors) -> None:
    ins.append(ins[0])


both = ("AllGatherV", "ReduceScatterV")
gather = ("AllGatherV",)
scatter = ("ReduceScatterV",)
INT = np.int64
# Operators, the fault, its code, a part of the message.
SHAPES: list[tuple[tuple[str, ...], Change, int, str]] = [
    (both, drop, 5, "needs 5 inputs, got 4"),
    (both, add, 5, "needs 5 inputs, got 6"),
    (both, put(0, Desc((1,) * 9, "float32")), 8, "x has 9 dims, the limit is 8"),
    (both, put(4, Desc((1,) * 9, "float16")), 8, "y has 9 dims"),
    (both, put(0, Desc((2, 2**36), "float32")), 9, "over the limit of 256 GB"),
    (both, put(0, Desc((2**40, 2**40), "float32")), 9, "over the limit of 256 GB"),
    (gather, put(4, Desc((2**37,), "float16")), 9, "256 GB"),
    (both, put(0, Desc((2, 0), "float32")), 9, "size 0 in dim 1 of [2, 0]: only dim 0 may be 0"),
    (both, put(0, Desc((2, 4), "uint16")), 13, "x is uint16"),
    (both, put(0, Desc((2, 4), "complex64")), 13, "x is complex64"),
    (scatter, put(0, Desc((2, 4), "bool")), 13, "x is bool"),
    (both, put(0, np.zeros((2, 4), "S5")), 13, "x is |S5; pass one of"),
    (
        both,
        put(0, Desc((-3, 4), "float32")),
        9,
        "size -3 in dim 0 of [-3, 4]: a size is at least 0",
    ),
    (both, put(1, np.zeros(1, np.int32)), 13, "is int32; counts are elements as int64"),
    (both, put(4, np.zeros(5, INT)), 13, "pass an empty float16 tensor of 5, got int64"),
    (both, put(0, Desc((2, 4), "float32", "nhwc")), 13, "x has format nhwc; pass it as nd"),
    (gather, put(2, Desc((2,), "int64", "fractal_nz")), 13, "recvCounts has format fractal_nz"),
    (gather, put(1, np.zeros((1, 1), INT)), 16, "sendCount must have 1 dim, got 2"),
    (gather, put(2, np.zeros((2, 1), INT)), 16, "recvCounts must have 1 dim, got 2"),
    (gather, put(3, np.zeros((1, 2), INT)), 16, "rdispls must have 1 dim, got 2"),
    (both, put(4, np.zeros((2, 1), np.float16)), 16, "y must have 1 dim, got 2"),
    (scatter, put(0, np.zeros(8, np.float32)), 16, "x must have 2 dims, got 1"),
    (scatter, put(0, np.zeros((2, 2, 2), np.float32)), 16, "x must have 2 dims, got 3"),
    (gather, put(1, np.zeros(2, INT)), 8, "sendCount must have 1 element, got 2"),
    (gather, put(2, np.zeros(3, INT)), 8, "recvCounts must have 2 elements, one per rank, got 3"),
    (gather, put(3, np.zeros(1, INT)), 8, "rdispls must have 2 elements, one per rank, got 1"),
    (scatter, put(1, np.zeros(1, INT)), 8, "sendCounts must have 2 elements"),
    (scatter, put(2, np.zeros(4, INT)), 8, "sdispls must have 2 elements"),
    (scatter, put(3, np.zeros(2, INT)), 8, "recvCount must have 1 element, got 2"),
]
read_only = np.empty((2, 4), np.float32)
read_only.flags.writeable = False
CALLS: list[tuple[tuple[str, ...], Change, int, str]] = [
    (both, lambda ins, outs: outs.clear(), 5, "needs 1 output, got 0"),
    (both, lambda ins, outs: outs.append(outs[0]), 5, "needs 1 output, got 2"),
    (both, put_out(np.empty(8, np.float32)), 16, "the output must have 2 dims"),
    (both, put_out(np.empty((3, 4), np.float32)), 8, "must have shape [2, 4], got [3, 4]"),
    (both, put_out(np.empty((2, 4), np.float64)), 13, "the output must be float32"),
    (both, put_out(Desc((2, 4), "float32", "nchw")), 13, "the output has format nchw"),
    (gather, put(1, np.array([9])), 8, "sendCount"),
    (gather, put(3, np.array([0, 5])), 8, "block 1 (rdispls 5 + recvCounts 4) exceeds"),
    (gather, put(3, np.array([0, 2**62])), 8, "block 1"),
    (scatter, put(2, np.array([0, 7])), 8, "slice 1"),
    (scatter, put(2, np.array([0, 2**63 - 1])), 8, "slice 1"),
    (scatter, put(4, np.empty(1, np.float16)), 8, "must have shape [1, 4]"),
    (gather, put(1, np.array([-1])), 1, "sendCount"),
    (gather, put(2, np.array([3, -1])), 1, "recvCounts[1] must be >= 0, got -1"),
    (gather, put(3, np.array([-4, 4])), 1, "rdispls[0] must be >= 0, got -4"),
    (scatter, put(1, np.array([6, -2])), 1, "sendCounts[1] must be >= 0, got -2"),
    (scatter, put(2, np.array([0, -6])), 1, "sdispls[1] must be >= 0, got -6"),
    (gather, put(1, np.array([2])), 1, "recvCounts[0]"),
    (scatter, put(3, np.array([5])), 1, "sendCounts[0]"),
    (gather, put(3, np.array([0, 2])), 1, "overlap"),
    (gather, put(2, Desc((2,), "int64")), 1, "recvCounts has no host data"),
    (scatter, put(3, Desc((1,), "int64")), 1, "recvCount has no host data"),
    (both, lambda ins, outs: outs.__setitem__(0, ins[0]), 14, "overlaps x in memory"),
    (both, put_out(read_only), 14, "the output is read-only"),
    (both, put(0, np.zeros((4, 2), np.float32).T), 14, "x is not contiguous: pass .contiguous()"),
    (both, put_out(np.empty((4, 2), np.float32).T), 14, "the output is not contiguous"),
    (gather, put(2, np.array([3, 0, 4])[::2]), 14, "recvCounts is not contiguous"),
    (both, put(0, np.zeros((2, 4), ">f4")), 14, "x is not in this machine's byte order"),
]


def all_zero(ins: Tensors, outs: Tensors) -> None:
    ins[1][:], ins[2][:], ins[3][:] = 0, 0, 0


def more_than_the_output(ins: Tensors, outs: Tensors) -> None:
    ins[4], outs[0] = np.empty(1, np.float16), np.empty((1, 4), np.float32)


CALLS += [(gather, all_zero, 1, "0"), (scatter, more_than_the_output, 8, "recvCount")]


def expand(rows: list[tuple[tuple[str, ...], Change, int, str]]) -> list[Any]:
    return [
        pytest.param(name, change, code, message, id=f"{name}-{code}-{message}")
        for names, change, code, message in rows
        for name in names
    ]


@pytest.mark.parametrize("name", both)
def test_a_right_call_passes(name: str) -> None:
    ins, outs = tensors(name)
    op = operation(name)
    assert op.infer_shape(ins) == [Desc((2, 4), "float32")]
    assert op.get_workspace_size(ins, outs) == 0


@pytest.mark.parametrize(("name", "change", "code", "message"), expand(SHAPES))
def test_infer_shape_refuses(name: str, change: Change, code: int, message: str) -> None:
    ins, outs = tensors(name)
    change(ins, outs)
    op = operation(name)
    for call in (lambda: op.infer_shape(ins), lambda: op.get_workspace_size(ins, outs)):
        with pytest.raises(collops.Error) as caught:
            call()
        assert caught.value.message.startswith(f"{name}: ")
        assert message in caught.value.message
        assert caught.value.code == code


@pytest.mark.parametrize(("name", "change", "code", "message"), expand(CALLS))
def test_get_workspace_size_refuses(name: str, change: Change, code: int, message: str) -> None:
    ins, outs = tensors(name)
    change(ins, outs)
    op = operation(name)
    with pytest.raises(collops.Error) as caught:
        op.get_workspace_size(ins, outs)
    assert caught.value.message.startswith(f"{name}: ")
    assert message in caught.value.message
    assert caught.value.code == code


def test_two_faults_give_the_code_of_the_earlier_line() -> None:
    ins, outs = tensors("AllGatherV")
    ins[0] = np.zeros((4, 2), np.uint16).T  # dtype (13) comes before contiguous (14)
    ins[2] = np.array([3, -1])
    with pytest.raises(collops.Error) as caught:
        operation("AllGatherV").get_workspace_size(ins, outs)
    assert caught.value.code == 13
