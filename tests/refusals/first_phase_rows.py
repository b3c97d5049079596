"""Refusals of infer_shape and get_workspace_size: operators, wrong argument, code, message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from right_calls import EVEN, REDUCTIONS, RIGHT, Tensors, V, array

import collops
from collops import TensorDesc as Desc
from collops import TwoDimTPInfo

Change = Callable[[Tensors, Tensors], object]


@dataclass(frozen=True)
class Row:
    """A right call of each operator that `change` spoils; `fields` replace some of its struct."""

    operators: tuple[str, ...]
    change: Change
    code: int
    message: str
    fields: dict[str, Any] = field(default_factory=dict)


def put(position: int, value: Any) -> Change:
    """Replaces an input."""
    return lambda ins, outs: ins.__setitem__(position, value)


def put_out(value: Any) -> Change:
    """Replaces the output."""
    return lambda ins, outs: outs.__setitem__(0, value)


def of_out(change: Callable[[Any], Any]) -> Change:
    """Makes the output from the right one."""
    return lambda ins, outs: outs.__setitem__(0, change(outs[0]))


def read_only(tensor: Any) -> Any:
    tensor = tensor.copy()
    tensor.flags.writeable = False
    return tensor


def drop(ins: Tensors, outs: Tensors) -> None:
    ins.pop()


def add(ins: Tensors, outs: Tensors) -> None:
    ins.append(ins[0])


def as_it_is(ins: Tensors, outs: Tensors) -> None:
    """The struct alone is wrong."""


def shape_of_out(change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Change:
    return of_out(lambda out: np.empty(change(out.shape), np.float32))


def on_one_memory(x_begin: int, out_begin: int) -> Change:
    """x and the output begin at those elements of one array."""

    def change(ins: Tensors, outs: Tensors) -> None:
        memory = np.zeros(40, np.float32)
        for tensors, begin in ((ins, x_begin), (outs, out_begin)):
            shape = tensors[0].shape
            tensors[0] = memory[begin:][: int(np.prod(shape))].reshape(shape)

    return change


def all_zero(ins: Tensors, outs: Tensors) -> None:
    ins[1][:], ins[2][:], ins[3][:] = 0, 0, 0


def one_row_of_y(ins: Tensors, outs: Tensors) -> None:
    ins[4], outs[0] = np.empty(1, np.float16), np.empty((1, 4), np.float32)


def empty_y(ins: Tensors, outs: Tensors) -> None:
    ins[5], outs[0] = np.empty(0, np.int8), np.empty((1, 0), np.float32)


G, S, E, E2 = ("AllGatherV",), ("ReduceScatterV",), ("AllToAllV",), ("AllToAllVV2",)
L = ("LinearParallel",)
HAVE_OUT = tuple(name for name in EVEN if RIGHT[name].output is not None)
ONE_X = (*EVEN, *E)
INT = np.int64
# infer_shape refuses these, and get_workspace_size too.
SHAPES = [
    Row(V, drop, 5, "needs 5 inputs, got 4"),
    Row(V, add, 5, "needs 5 inputs, got 6"),
    Row(ONE_X, drop, 5, "needs 1 input, got 0"),
    Row(ONE_X, add, 5, "needs 1 input, got 2"),
    Row(L, drop, 5, "needs 3 inputs, got 2"),
    Row((*V, *ONE_X), put(0, Desc((1,) * 9, "float32")), 8, "x has 9 dims, the limit is 8"),
    Row(("AllGather",), put(0, Desc((1,) * 8, "float32")), 8, "x has 8 dims, the limit is 7"),
    Row(ONE_X, put(0, Desc((), "float32")), 8, "x has 0 dims"),
    Row(V, put(4, Desc((1,) * 9, "float16")), 8, "y has 9 dims"),
    Row(L, put(1, Desc((1,) * 9, "float32")), 8, "weight has 9 dims, the limit is 8"),
    Row((*V, *EVEN), put(0, Desc((2, 2**36), "float32")), 9, "over the limit of 256 GB"),
    Row(V, put(0, Desc((2**40, 2**40), "float32")), 9, "over the limit of 256 GB"),
    Row(L, put(0, Desc((2**30, 2**30), "float32")), 9, "over the limit of 256 GB"),
    Row(G, put(4, Desc((2**37,), "float16")), 9, "256 GB"),
    Row(
        ("AllGather",),
        put(0, Desc((2**34, 3), "float32")),
        9,
        "the output of shape [2, 1717",
    ),
    Row(V, put(0, Desc((2, 0), "float32")), 9, "size 0 in dim 1 of [2, 0]: only dim 0 may be 0"),
    Row(ONE_X, put(0, Desc((2, 0), "float32")), 9, "x has size 0 in dim 1"),
    Row(L, put(0, Desc((3, 0), "float32")), 9, "x has size 0 in dim 1 of [3, 0]"),
    Row(("AllGather",), put(0, Desc((0, 2), "float32")), 9, "the output has size 0 in dim 1"),
    Row(
        V, put(0, Desc((-3, 4), "float32")), 9, "size -3 in dim 0 of [-3, 4]: a size is at least 0"
    ),
    Row(V, put(0, Desc((2, 4), "uint16")), 13, "x is uint16"),
    Row(V, put(0, Desc((2, 4), "complex64")), 13, "x is complex64"),
    Row(ONE_X, put(0, Desc((4, 3), "uint32")), 13, "x is uint32; pass one of"),
    Row(S, put(0, Desc((2, 4), "bool")), 13, "x is bool"),
    Row(tuple(REDUCTIONS), put(0, Desc((4, 3), "bool")), 13, "x is bool; pass one of"),
    Row(V, put(0, np.zeros((2, 4), "S5")), 13, "x is |S5; pass one of"),
    Row(L, put(0, Desc((3, 4), "int8")), 13, "x is int8; pass one of float32, float16, bfloat16"),
    Row(L, put(1, Desc((5, 4), "float64")), 13, "weight is float64"),
    Row(L, put(1, Desc((5, 4), "bfloat16")), 13, "weight is bfloat16 but x is float32"),
    Row(L, put(2, Desc((5,), "float16")), 13, "residual is float16 but x is float32"),
    Row(V, put(1, np.zeros(1, np.int32)), 13, "is int32; counts are elements as int64"),
    Row(V, put(4, np.zeros(5, INT)), 13, "pass an empty float16 tensor of 5, got int64"),
    Row(V, put(0, Desc((2, 4), "float32", "nhwc")), 13, "x has format nhwc; pass it as nd"),
    Row(E, put(0, Desc((4,), "float32", "nhwc")), 13, "x has format nhwc"),
    Row(EVEN, put(0, Desc((4, 3), "float32", "fractal_nz")), 13, "x has format fractal_nz"),
    Row(G, put(2, Desc((2,), "int64", "fractal_nz")), 13, "recvCounts has format fractal_nz"),
    Row(L, put(1, Desc((5, 4), "float32", "fractal_nz")), 13, "weight has format fractal_nz"),
    Row(G, put(1, np.zeros((1, 1), INT)), 16, "sendCount must have 1 dim, got 2"),
    Row(G, put(2, np.zeros((2, 1), INT)), 16, "recvCounts must have 1 dim, got 2"),
    Row(G, put(3, np.zeros((1, 2), INT)), 16, "rdispls must have 1 dim, got 2"),
    Row(V, put(4, np.zeros((2, 1), np.float16)), 16, "y must have 1 dim, got 2"),
    Row(S, put(0, np.zeros(8, np.float32)), 16, "x must have 2 dims, got 1"),
    Row(S, put(0, np.zeros((2, 2, 2), np.float32)), 16, "x must have 2 dims, got 3"),
    Row(G, put(1, np.zeros(2, INT)), 8, "sendCount must have 1 element, got 2"),
    Row(G, put(2, np.zeros(3, INT)), 8, "recvCounts must have 2 elements, one per rank, got 3"),
    Row(G, put(3, np.zeros(1, INT)), 8, "rdispls must have 2 elements, one per rank, got 1"),
    Row(S, put(1, np.zeros(1, INT)), 8, "sendCounts must have 2 elements"),
    Row(S, put(2, np.zeros(4, INT)), 8, "sdispls must have 2 elements"),
    Row(S, put(3, np.zeros(2, INT)), 8, "recvCount must have 1 element, got 2"),
    Row(
        ("ReduceScatter",),
        put(0, Desc((5, 3), "float32")),
        8,
        "x has 5 rows, which do not divide evenly among 2 ranks: pad",
    ),
    Row(
        ("AllToAll",),
        put(0, Desc((5, 3), "float32")),
        8,
        "x has 15 elements, which do not divide evenly among 2 ranks",
    ),
    Row(
        ("AllToAll",),
        put(0, Desc((4, 4, 4), "float32")),
        16,
        "x must have 2 dims with transpose, got 3 in shape [4, 4, 4]",
        {"transpose": True},
    ),
    Row(
        ("AllToAll",),
        as_it_is,
        8,
        "x has 3 columns, which do not divide evenly among 2 ranks: pad x to 4 columns",
        {"transpose": True},
    ),
    Row(E, put(0, Desc((2,), "float32")), 1, "slice 1 (sdispls 2 + sendCounts 1) exceeds x's 2 el"),
    Row(
        E, as_it_is, 1, "sum of recvCounts does not fit into 64 bits", {"recv_counts": [2**62] * 2}
    ),
    Row(
        E,
        as_it_is,
        1,
        "all recvCounts are 0: this rank must receive something",
        {"recv_counts": [0, 0]},
    ),
    Row(
        E,
        as_it_is,
        1,
        "block 1 (rdispls 3 + recvCounts 2) exceeds the output's 4",
        {"rdispls": [0, 3]},
    ),
    Row(
        E,
        as_it_is,
        1,
        "block 0 (rdispls 0 + recvCounts 2) overlaps block 1",
        {"rdispls": [0, 1]},
    ),
    Row(
        E,
        as_it_is,
        9,
        "the output of shape [1, 1099511627777] is over the limit",
        {"recv_counts": [2**40, 1], "rdispls": [0, 2**40]},
    ),
    Row(L, put(0, Desc((12,), "float32")), 8, "x must have 2 or 3 dims, got 1"),
    Row(L, put(1, Desc((1, 1, 5, 4), "float32")), 8, "weight must have 2 or 3 dims, got 4"),
    Row(L, put(2, Desc((1, 1, 5), "float32")), 8, "residual must have 1 or 2 dims, got 3"),
    Row(L, put(0, Desc((3, 7), "float32")), 8, "x has k = 7 columns but weight [5, 4] has 4 colum"),
    Row(L, put(1, Desc((2, 5, 4), "float32")), 8, "must have 1 matrix in dim 0, got 2"),
    Row(L, put(2, Desc((2, 5), "float32")), 8, "residual must be [5] or [1, 5], got [2, 5]"),
]
# The fields of LinearParallel that only a call can show to be wrong.
SHAPES += [
    Row(L, as_it_is, code, message, fields)
    for fields, code, message in (
        ({"two_dim_tp_info": TwoDimTPInfo(ag_dim=2, rs_dim=2)}, 1, "must be rankSize 2"),
        ({"two_dim_tp_info": TwoDimTPInfo()}, 1, "agDim 0 * rsDim 0 must be rankSize 2"),
        ({"gather_rows": [3]}, 1, "gatherRows must have length 2, one per member"),
        ({"gather_rows": [3, -1]}, 1, "gatherRows[1] must be >= 0, got -1"),
        ({"gather_rows": [4, 3]}, 1, "gatherRows[0] is 4 but x of this rank 0 has 3 rows"),
        ({"gather_rows": [3, 2**63 - 1]}, 1, "the sum of gatherRows up to [1]"),
        ({"gather_rows": [3, 9], "scatter_rows": [11]}, 1, "scatterRows have a sum of 11 but"),
        ({"scatter_rows": [3, 3]}, 1, "scatterRows must have length 1"),
        ({"type": 0, "gather_rows": [3]}, 1, "gatherRows must be empty for type 0"),
        ({"type": 3, "scatter_rows": [3]}, 1, "scatterRows must be empty for type 3"),
        ({"type": 1}, 8, "3 rows in dim 0 do not divide by 2 ranks: give scatterRows"),
        ({"trans_weight": False}, 8, "weight [5, 4] has 5 rows; with transWeight false"),
        ({"out_data_type": 1}, 13, "outDataType is 1 (float16) but x is float32"),
    )
]
# get_workspace_size alone refuses these.
CALLS = [
    Row((*V, *HAVE_OUT, *L), lambda ins, outs: outs.clear(), 5, "needs 1 output, got 0"),
    Row((*V, *HAVE_OUT), lambda ins, outs: outs.append(outs[0]), 5, "needs 1 output, got 2"),
    Row(("Broadcast",), lambda ins, outs: outs.append(ins[0]), 5, "needs 0 outputs, got 1"),
    Row((*V, *HAVE_OUT), of_out(lambda out: out.reshape(-1)), 16, "the output must have"),
    Row(L, of_out(lambda out: out.reshape(-1)), 8, "the output must have 2 dims"),
    Row(V, put_out(np.empty((3, 4), np.float32)), 8, "must have shape [2, 4], got [3, 4]"),
    Row(HAVE_OUT, shape_of_out(lambda shape: (9, *shape[1:])), 8, "the output must have shape"),
    Row(L, shape_of_out(lambda shape: shape[::-1]), 8, "must have shape [6, 5], got [5, 6]"),
    Row(
        (*V, *HAVE_OUT, *L), of_out(lambda out: out.astype("f8")), 13, "the output must be float32"
    ),
    Row(V, put_out(Desc((2, 4), "float32", "nchw")), 13, "the output has format nchw"),
    Row(
        HAVE_OUT,
        of_out(lambda out: collops.with_format(out, "nhwc")),
        13,
        "the output has format nhwc",
    ),
    Row((*V, *HAVE_OUT, *L), of_out(read_only), 14, "the output is read-only"),
    Row(V, put_out(np.empty((4, 2), np.float32).T), 14, "the output is not contiguous"),
    Row(L, put_out(np.empty((5, 6), np.float32).T), 14, "the output is not contiguous"),
    Row(
        HAVE_OUT,
        of_out(lambda out: np.asfortranarray(np.repeat(out, 2, axis=0))[::2]),
        14,
        "the output is not contiguous",
    ),
    Row(V, lambda ins, outs: outs.__setitem__(0, ins[0]), 14, "overlaps x in memory"),
    Row(("AllGather", "ReduceScatter"), on_one_memory(0, 0), 14, "the output overlaps x in memory"),
    Row(("AllReduce",), on_one_memory(0, 3), 14, "the output overlaps x in memory"),
    Row(
        ("Broadcast",),
        lambda ins, outs: ins.__setitem__(0, read_only(ins[0])),
        14,
        "x is read-only, but the call changes it",
    ),
    Row(V, put(0, np.zeros((4, 2), np.float32).T), 14, "x is not contiguous: pass .contiguous()"),
    Row(L, put(1, array(4, 5).T), 14, "weight is not contiguous: pass .contiguous()"),
    Row(G, put(2, np.array([3, 0, 4])[::2]), 14, "recvCounts is not contiguous"),
    Row(V, put(0, np.zeros((2, 4), ">f4")), 14, "x is not in this machine's byte order"),
    Row(L, put(2, np.zeros(5, ">f4")), 14, "residual is not in this machine's byte order"),
    Row(G, put(1, np.array([9])), 8, "sendCount"),
    Row(G, put(3, np.array([0, 5])), 8, "block 1 (rdispls 5 + recvCounts 4) exceeds"),
    Row(G, put(3, np.array([0, 2**62])), 8, "block 1"),
    Row(S, put(2, np.array([0, 7])), 8, "slice 1"),
    Row(S, put(2, np.array([0, 2**63 - 1])), 8, "slice 1"),
    Row(S, put(4, np.empty(1, np.float16)), 8, "must have shape [1, 4]"),
    Row(G, put(1, np.array([-1])), 1, "sendCount"),
    Row(G, put(2, np.array([3, -1])), 1, "recvCounts[1] must be >= 0, got -1"),
    Row(G, put(3, np.array([-4, 4])), 1, "rdispls[0] must be >= 0, got -4"),
    Row(S, put(1, np.array([6, -2])), 1, "sendCounts[1] must be >= 0, got -2"),
    Row(S, put(2, np.array([0, -6])), 1, "sdispls[1] must be >= 0, got -6"),
    Row(G, put(1, np.array([2])), 1, "recvCounts[0]"),
    Row(S, put(3, np.array([5])), 1, "sendCounts[0]"),
    Row(G, put(3, np.array([0, 2])), 1, "overlap"),
    Row(G, put(2, Desc((2,), "int64")), 1, "recvCounts has no host data"),
    Row(S, put(3, Desc((1,), "int64")), 1, "recvCount has no host data"),
    Row(G, all_zero, 1, "0"),
    Row(S, one_row_of_y, 8, "recvCount"),
    Row(E2, put(1, np.array([[1, 1]])), 16, "sendCounts must have 1 dim"),
    Row(E2, put(4, np.array([0])), 8, "rdispls must have 2 elements, one per rank, got 1"),
    Row(E2, put(2, np.array([0, 2], np.int32)), 13, "sdispls is int32; counts are elements as int"),
    Row(E2, put(5, np.empty(4, np.float16)), 13, "pass an empty int8 tensor of 4, got float16"),
    Row(E2, empty_y, 9, "the output has size 0 in dim 1 of [1, 0]"),
    Row(E2, put(2, np.array([0, 4])), 8, "slice 1 (sdispls 4 + sendCounts 1) exceeds x's 4 elem"),
    Row(E2, put(4, np.array([0, 3])), 8, "block 1 (rdispls 3 + recvCounts 2) exceeds the output's"),
    Row(E2, put(3, np.array([2, 1])), 8, "recvCounts add up to 3 but y has length 4: they must be"),
    Row(E2, put(1, np.array([-1, 1])), 1, "sendCounts[0] must be >= 0, got -1"),
    Row(E2, put(4, np.array([2, 1])), 1, "block 1 (rdispls 1 + recvCounts 2) overlaps block 0"),
    Row(E2, put(3, Desc((2,), "int64")), 1, "recvCounts has no host data"),
]
