"""The plain level's four products on four ranks: right calls, and rows of refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
from disagreement_rows import Call, Rows

import collops

Comm = collops.Communicator
Changes = dict[str, Any]
BOTH = "all_gather_matmul_reduce_scatter"
GATHER, SCATTER, REDUCE = "all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce"
METHODS = [BOTH, GATHER, SCATTER, REDUCE]


def whole(rank: int, tensor: int, *shape: int) -> Any:
    """Whole numbers that differ in every rank, tensor and position."""
    values = np.random.default_rng([rank, tensor]).integers(-3, 4, shape)
    return values.astype(np.float32)


def call(comm: Comm, method: str, **changes: Any) -> Any:
    """A right call: x [3, 4], weight [4, 5]; `changes` replace arguments or add some."""
    words: Changes = {"x": whole(comm.rank, 0, 3, 4), "weight": whole(comm.rank, 1, 4, 5)}
    if method == BOTH:
        words.update(ag_dim=2, rs_dim=2)
    words.update(changes)
    return getattr(comm, method)(words.pop("x"), words.pop("weight"), **words)


def expected(rank: int, method: str) -> Any:
    """Of a right call of 4 ranks."""
    xs, weights = ([whole(r, i, 3 + i, 4 + i) for r in range(4)] for i in (0, 1))
    if method == GATHER:
        return np.concatenate(xs) @ weights[rank]
    if method == BOTH:
        products = [np.concatenate(xs[r // 2 * 2 :][:2]) @ weights[r] for r in range(4)]
        total = products[rank % 2] + products[rank % 2 + 2]
        return total[rank // 2 * 3 :][:3]
    total = sum(x @ weight for x, weight in zip(xs, weights, strict=True))
    return total[rank : min(rank + 1, 3)] if method == SCATTER else total


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    return np.ones(shape, dtype)


def read_only() -> Any:
    array = floats(3, 5)
    array.flags.writeable = False
    return array


SQUARE = floats(4, 4)
# The method, rank 1's arguments, its error's code, and a part of the message.
FAULTS: dict[str, tuple[str, Changes, int, str]] = {
    "x: a number": (GATHER, {"x": 3}, 1, f"{GATHER}: x must be a numpy array, a torch tensor"),
    "x: None": (BOTH, {"x": None}, 1, f"{BOTH}: x must be a numpy array"),
    "weight: a list": (REDUCE, {"weight": [[1.0]]}, 1, f"{REDUCE}: weight must be a numpy array"),
    "residual: a number": (SCATTER, {"residual": 2.0}, 1, f"{SCATTER}: residual must be a numpy"),
    "x: 0 dims": (REDUCE, {"x": floats()}, 8, "[matrices, rows, k], got 0 dims"),
    "x: 1 dim": (BOTH, {"x": floats(4)}, 8, "[matrices, rows, k], got 1 dims"),
    "x: 4 dims": (GATHER, {"x": floats(1, 1, 3, 4)}, 8, "[matrices, rows, k], got 4 dims"),
    "x: 4 dims, scattered": (SCATTER, {"x": floats(1, 1, 3, 4)}, 8, "x must be [rows, k] or"),
    "x: no columns": (REDUCE, {"x": floats(3, 0)}, 9, "x has size 0 in dim 1 of [3, 0]"),
    "x: int32": (BOTH, {"x": floats(3, 4, dtype="i4")}, 13, "x is int32; pass one of float32"),
    "x: float64": (REDUCE, {"x": floats(3, 4, dtype="f8")}, 13, "x is float64; pass one of"),
    "x: text": (GATHER, {"x": np.array([["a"] * 4] * 3)}, 13, "x is"),
    "x: byte order": (SCATTER, {"x": floats(3, 4, dtype=">f4")}, 14, "x is not in this machine's"),
    "x: strided": (GATHER, {"x": floats(3, 8)[:, ::2]}, 14, "x is not contiguous"),
    "weight: dtype": (
        GATHER,
        {"weight": floats(4, 5, dtype="f2")},
        13,
        "weight is float16 but x is float32",
    ),
    "weight: 1 dim": (SCATTER, {"weight": floats(4)}, 8, "weight must have 2 or 3 dims, got 1"),
    "weight: transposed": (BOTH, {"weight": floats(5, 4).T}, 14, "weight is not contiguous"),
    "weight: k": (BOTH, {"weight": floats(3, 5)}, 8, "x has k = 4 columns but weight [3, 5] has 3"),
    "weight: [n, k]": (REDUCE, {"trans_weight": True}, 8, "with trans_weight=True it is [n, k]"),
    "weight: not [n, k]": (
        GATHER,
        {"weight": floats(5, 4)},
        8,
        "all_gather_matmul: x has k = 4 columns but weight [5, 4] has 5 rows; it is [k, n]: for "
        "[n, k] pass trans_weight=True",
    ),
    "residual: dtype": (
        BOTH,
        {"residual": floats(5, dtype="f2")},
        13,
        "residual is float16 but x is float32",
    ),
    "residual: length": (REDUCE, {"residual": floats(4)}, 8, "residual must be [5] or [1, 5], got"),
    "residual: rows": (GATHER, {"residual": floats(5, 1)}, 8, "residual must be [5] or [1, 5], go"),
    "gather_rows: length": (GATHER, {"gather_rows": [3] * 3}, 1, "gather_rows must have length 4"),
    "gather_rows: group": (BOTH, {"gather_rows": [3] * 4}, 1, "gather_rows must have length 2"),
    "gather_rows: negative": (GATHER, {"gather_rows": [3, 3, -1, 3]}, 1, "gather_rows[2] must be"),
    "gather_rows: own": (GATHER, {"gather_rows": [3, 4, 3, 3]}, 1, "gather_rows[1] is 4 but x of"),
    "gather_rows: halves": (BOTH, {"gather_rows": [3, 3.5]}, 1, "gather_rows must be whole"),
    "gather_rows: a number": (GATHER, {"gather_rows": 3}, 1, "gather_rows must be whole numbers"),
    "gather_rows: huge": (GATHER, {"gather_rows": [2**62, 3, 2**62, 3]}, 1, "int64"),
    "gather_rows: no int64": (
        GATHER,
        {"gather_rows": [2**70, 3, 3, 3]},
        1,
        "gather_rows[0] must be",
    ),
    "scatter_rows: length": (SCATTER, {"scatter_rows": [3]}, 1, "scatter_rows must have length 4"),
    "scatter_rows: sum": (
        SCATTER,
        {"scatter_rows": [1, 1, 0, 0]},
        1,
        "matmul_reduce_scatter: scatter_rows have a sum of 2 but x has 3 rows",
    ),
    "scatter_rows: gathered": (BOTH, {"scatter_rows": [3, 4]}, 1, "a sum of 7 but the gathered x"),
    "scatter_rows: words": (SCATTER, {"scatter_rows": ["a"] * 4}, 1, "scatter_rows must be whole"),
    "grid: too many": (BOTH, {"ag_dim": 3}, 1, "ag_dim 3 times rs_dim 2 is not the 4 ranks"),
    "grid: none": (BOTH, {"ag_dim": 0}, 1, "must be >= 1, got 0 and 2"),
    "grid: negative": (BOTH, {"ag_dim": -2, "rs_dim": -2}, 1, "rs_dim must be >= 1, got -2 and -2"),
    "grid: a word": (BOTH, {"ag_dim": "2"}, 1, "ag_dim must be a whole number, got '2'"),
    "grid: a fraction": (BOTH, {"rs_dim": 2.0}, 1, "rs_dim must be a whole number, got 2.0"),
    "grid: None": (BOTH, {"ag_dim": None}, 1, "ag_dim must be a whole number, got None"),
    "out: shape": (
        REDUCE,
        {"out": floats(5, 3)},
        8,
        "matmul_all_reduce: out must have shape [3, 5], got [5, 3]",
    ),
    "out: several matrices": (
        REDUCE,
        {"out": floats(1, 3, 5)},
        8,
        "matmul_all_reduce: out must have 2 dims, shape [3, 5], got 3 in shape [1, 3, 5]",
    ),
    "out: rows": (SCATTER, {"out": floats(3, 5)}, 8, "must have shape [1, 5], got [3, 5]"),
    "out: dims": (GATHER, {"out": floats(60)}, 8, "must have 2 dims"),
    "out: dtype": (
        REDUCE,
        {"out": floats(3, 5, dtype="f8")},
        13,
        "out must be float32 as x",
    ),
    "out: a list": (BOTH, {"out": [[0.0] * 5] * 3}, 1, "out: a numpy array, a torch tensor or an"),
    "out: read-only": (BOTH, {"out": read_only()}, 14, "out is read-only"),
    "out: strided": (REDUCE, {"out": floats(3, 10)[:, ::2]}, 14, "out is not contiguous"),
    "out: weight": (BOTH, {"weight": SQUARE, "out": SQUARE[:3]}, 14, "overlap"),
}


def product(method: str, **changes: Any) -> Call:
    return lambda comm: call(comm, method, **changes)


def gather_of_2_and_4_rows(comm: Comm) -> Any:
    """Each member of a group has the rows that the list says."""
    rows = 4 if comm.rank % 2 else 2
    return call(comm, BOTH, x=floats(rows, 4), gather_rows=[2, 4])


# Rank 2 is the odd one.
DISAGREEMENTS: Rows = {
    "method": (product(REDUCE), product(SCATTER), ["matmul_all_reduce", "matmul_reduce_scatter"]),
    "operator": (
        lambda comm: comm.all_reduce(floats(3, 5)),
        product(BOTH),
        ["the call", "all_reduce", "all_gather_matmul_reduce_scatter"],
    ),
    "dtype": (
        product(GATHER, x=floats(3, 4, dtype="f2"), weight=floats(4, 5, dtype="f2")),
        product(GATHER),
        ["dtype", "float16", "float32"],
    ),
    "k": (
        product(SCATTER, x=floats(3, 6), weight=floats(6, 5)),
        product(SCATTER),
        ["x has k = ", "6", "4"],
    ),
    "n": (product(REDUCE, weight=floats(4, 7)), product(REDUCE), ["weight has n = ", "7", "5"]),
    "rows": (product(REDUCE, x=floats(2, 4)), product(REDUCE), ["rows", "2", "3"]),
    "rows that are gathered": (
        product(GATHER, x=floats(5, 4)),
        product(GATHER),
        ["all_gather_matmul: ", "gather_rows[0] is", "pass gather_rows on all of them"],
    ),
    "ag_dim": (
        product(BOTH, ag_dim=4, rs_dim=1),
        product(BOTH),
        ["ag_dim", "4", "2"],
    ),
    "inner_dim_is_ag": (product(BOTH, inner_dim_is_ag=False), product(BOTH), ["inner_dim_is_ag"]),
    "gather_rows": (
        product(BOTH, gather_rows=[3, 3]),
        gather_of_2_and_4_rows,
        ["gather_rows[0]"],
    ),
    "scatter_rows": (
        product(BOTH, scatter_rows=[2, 4]),
        product(BOTH, scatter_rows=[3, 3]),
        ["scatter_rows[0]", "2", "3"],
    ),
}
