"""Refusals of all_gatherv and reduce_scatterv of the plain level: rows of wrong calls."""

from __future__ import annotations

from typing import Any

import numpy as np
from disagreement_rows import Call

import collops

Comm = collops.Communicator
X = np.arange(6, dtype=np.float32).reshape(3, 2)  # 3 rows of 2 on both ranks


def gather(*args: Any, **kwargs: Any) -> Call:
    return lambda comm: comm.all_gatherv(*args, **kwargs)


def scatter(*args: Any, **kwargs: Any) -> Call:
    return lambda comm: comm.reduce_scatterv(*args, **kwargs)


def read_only(shape: tuple[int, ...]) -> Any:
    array = np.empty(shape, np.float32)
    array.flags.writeable = False
    return array


def overlapping(comm: Comm) -> Any:
    memory = np.zeros(20, np.float32)
    return comm.all_gatherv(memory[1:7].reshape(3, 2), [3, 3], out=memory[:12].reshape(6, 2))


def block_of_another(comm: Comm) -> Any:
    out = np.zeros((6, 2), np.float32)
    return comm.all_gatherv(out[3 * (1 - comm.rank) :][:3], [3, 3], out=out)


def scatter_onto_x(comm: Comm) -> Any:
    x = X.copy()
    return comm.reduce_scatterv(x, [2, 1], out=x[: 2 - comm.rank])


def out(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return np.empty(shape, dtype)


Rows = list[tuple[str, Call, int, str]]
# What is wrong on rank 1, its code, and a part of the message.
GATHERS: Rows = [
    ("numbers", gather([1, 2], [3, 3]), 1, "x is a list of numbers: pass np.array(x"),
    ("a number", gather(3, [3, 3]), 1, "or an object with __dlpack__, got int"),
    ("a class", gather(np.ndarray, [3, 3]), 1, "or an object with __dlpack__, got type"),
    ("0 dims", gather(np.array(3.0), [3, 3]), 16, "x has 0 dims, it needs at least 1"),
    ("dim", gather(X, [3, 3], 2), 1, "dim must be from -2 to 1 for the 2 dims of x, got 2"),
    ("low dim", gather(X, [3, 3], -3), 1, "dim must be from -2 to 1 for the 2 dims of x, got -3"),
    ("no dim", gather(X, [3, 3], None), 1, "dim must be a whole number, got None"),
    ("rows of dim", gather(X, [3, 3], 1), 1, "sizes[1] is 3, but x has 2 rows along dim 1 on"),
    ("no tensors", gather([], [3, 3]), 1, "x is an empty list: for no rows pass np.empty"),
    ("list of 0 dims", gather([X, np.array(3.0)], [3, 3]), 16, "x[1] has 0 dims, it needs"),
    ("list of other rows", gather([X, X[:2]], [3, 3]), 1, "x[1] has 2 rows along dim 0, but x[0]"),
    ("list without outs", gather([X, X], [3, 3], out=out((6, 2))), 1, "out must be a list of 2 te"),
    (
        "list of too few outs",
        gather([X, X], [3, 3], out=[None]),
        1,
        "list of 2 tensors as x, got 1",
    ),
    (
        "list out shape",
        gather([X, X], [3, 3], out=[None, out((5, 2))]),
        8,
        "out[1] must have shape",
    ),
    ("list of strided", gather([X, X.repeat(2, 0)[::2]], [3, 3]), 14, "(tensor 1 of the list)"),
    (
        "read-only out of dim",
        gather(X, [2, 2], 1, out=read_only((3, 4))),
        14,
        "out is read-only: pass a writable one",
    ),
    ("out dtype of dim", gather(X, [2, 2], 1, out=out((3, 4), "f8")), 13, "out must be float32 as"),
    ("short sizes", gather(X, [3]), 1, "sizes must have length 2, one per rank, got 1"),
    ("long sizes", gather(X, [3, 3, 0]), 1, "sizes must have length 2, one per rank, got 3"),
    ("negative size", gather(X, [-1, 3]), 1, "sizes[0] must be >= 0, got -1"),
    ("other rows", gather(X, [2, 4]), 1, "sizes[1] is 4, but x has 3 rows on rank 1"),
    ("fractions", gather(X, [3.5, 3]), 1, "sizes must be whole numbers of rows, one per rank"),
    ("one size", gather(X, 3), 1, "sizes must be a list of whole numbers, one per rank, got 3"),
    ("nested sizes", gather(X, [[3], [3]]), 1, "sizes must be a list of whole numbers"),
    ("huge size", gather(X, [2**62, 3]), 9, "are more than memory can hold"),
    ("large size", gather(X, [2**45, 3]), 27, "no memory for an output of shape"),
    ("out shape", gather(X, [3, 3], out=out((5, 2))), 8, "out must have shape [6, 2], got [5, 2]"),
    ("out dtype", gather(X, [3, 3], out=out((6, 2), "f8")), 13, "out must be float32 as x"),
    ("out list", gather(X, [3, 3], out=[1]), 1, "out must be a numpy array or a torch tensor"),
    ("out strided", gather(X, [3, 3], out=out((6, 4))[:, ::2]), 14, "out is not contiguous"),
    ("out read-only", gather(X, [3, 3], out=read_only((6, 2))), 14, "out is read-only"),
    ("overlap", overlapping, 14, "out overlaps x in memory"),
    ("block of another", block_of_another, 14, "pass x as this rank's own block of out"),
    ("x strided", gather(X.repeat(2, 0)[::2], [3, 3]), 14, "not contiguous: pass .contiguous()"),
    ("x byte order", gather(X.astype(">f4"), [3, 3]), 14, "x is not in this machine's byte order"),
    ("references", gather(X.astype("O"), [3, 3]), 13, "are references and cannot be sent"),
    ("bytes dtype", gather(X.astype("S3"), [3, 3], out=out((6, 2), "S4")), 13, "out must be |S3"),
    ("bytes strided", gather(np.zeros((2, 3), "S3").T, [3, 3]), 14, "x is not contiguous"),
]
# Without sizes.
EXCHANGES: Rows = [
    ("numbers", gather([1, 2]), 1, "x is a list of numbers: pass np.array(x"),
    ("0 dims", gather(np.array(3.0)), 16, "x has 0 dims"),
    ("dim", gather(X, dim=2), 1, "dim must be from -2 to 1 for the 2 dims of x, got 2"),
    ("list of other rows", gather([X, X[:2]]), 1, "x[1] has 2 rows along dim 0, but x[0] has 3"),
    ("out shape", gather(X, out=out((6, 3))), 8, "out must have shape [6, 2], got [6, 3]"),
    ("x strided", gather(X.repeat(2, 0)[::2]), 14, "x is not contiguous"),
    ("x byte order", gather(X.astype(">f4")), 14, "byte order"),
]
SCATTERS: Rows = [
    ("numbers", scatter([1, 2]), 1, "reduce_scatterv: x is a list of numbers: pass"),
    ("a number", scatter(2), 1, "reduce_scatterv: x must be a numpy array"),
    ("0 dims", scatter(np.array(3.0)), 16, "x has 0 dims"),
    ("dim", scatter(X, dim=-3), 1, "dim must be from -2 to 1 for the 2 dims of x, got -3"),
    ("sizes of dim", scatter(X, [2, 1], 1), 1, "sizes sum to 3 rows, but x has 2 along dim 1"),
    ("out shape of dim", scatter(X, dim=1, out=out((3, 2))), 8, "out must have shape [3, 1], got"),
    ("one block", scatter([X]), 1, "x must have length 2, one block per rank, got 1"),
    ("dtype of a block", scatter([X, X.astype("f8")]), 13, "x[1] must be numpy's float32 as x[0]"),
    ("shape of a block", scatter([X, X[:, :1]]), 8, "blocks may differ in dim 0 alone"),
    ("dims of a block", scatter([X, X[0]]), 8, "x[1] has shape [2], x[0] [3, 2]"),
    ("sizes of blocks", scatter([X, X], [3, 4]), 1, "sizes [3, 4] are not the blocks' [3, 3]"),
    ("op", scatter(X, op="mean"), 1, 'op must be "sum", "prod", "max", "min", "avg", "band'),
    ("op type", scatter(X, op=3), 1, "got 3"),
    ("sizes", scatter(X, [2, 2]), 1, "sizes sum to 4 rows, but x has 3"),
    ("negative size", scatter(X, [4, -1]), 1, "sizes[1] must be >= 0, got -1"),
    ("bool", scatter(X.astype(bool)), 13, "there is no sum of bool"),
    ("complex", scatter(X.astype("c8"), op="max"), 13, "there is no max of complex64"),
    ("bytes", scatter(X.astype("S3")), 13, "elements of type |S3 cannot be reduced"),
    (
        "bits of floats",
        scatter(X, op="band"),
        13,
        "there is no band of float32: convert x to an integer type",
    ),
    (
        "avg of bool",
        scatter(X.astype(bool), op="avg"),
        13,
        "there is no avg of bool: convert x to a type of real numbers",
    ),
    ("out shape", scatter(X, out=out((2, 2))), 8, "out must have shape [1, 2], got [2, 2]"),
    ("out dtype", scatter(X, out=out((1, 2), "f2")), 13, "out must be float32 as x, got float16"),
    ("overlap", scatter_onto_x, 14, "reduce_scatterv: out overlaps x in memory"),
    ("x strided", scatter(X.T), 14, "x is not contiguous"),
]
