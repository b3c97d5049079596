"""all_to_allv, gatherv, scatterv and reduce: wrong calls."""

from __future__ import annotations

from typing import Any

import numpy as np
from disagreement_rows import Call, Rows
from even_rows import STRIDED, X, plain

import collops

Comm = collops.Communicator
SENDS = [1, 2, 3]


def sent(x: Any = X, sends: Any = SENDS, *others: Any, **kwargs: Any) -> Call:
    """all_to_allv; without more arguments every rank sends its rank's neighbours the same."""
    return plain("all_to_allv", x, sends, *others, **kwargs)


def received(comm: Comm) -> Any:
    """The right call with both lists."""
    return comm.all_to_allv(X, SENDS, [comm.rank + 1] * 3)


def scattered(sizes: Any = SENDS, x: Any = X, root: Any = 1) -> Call:
    return lambda comm: comm.scatterv(x if comm.rank == 1 else None, sizes, root)


def overlapping(comm: Comm) -> Any:
    memory = np.zeros((10, 2), np.float32)
    return comm.all_to_allv(memory[:6], SENDS, [2] * 3, memory[4:])


GATHER, ALL, REDUCE = plain("gatherv", X, [6] * 3), received, plain("reduce", X)
# The fault of rank 1, what the others call, the fault's code, and a part of its message.
ROOTED_FAULTS: dict[str, tuple[Call, Call, int, str]] = {
    "all: a list": (sent([1.0]), sent(), 1, "all_to_allv: x must be a numpy array"),
    "all: 0 dims": (sent(np.array(3.0)), sent(), 16, "all_to_allv: x has 0 dims"),
    "all: no sizes": (sent(X, None), sent(), 1, "send_sizes must be a list of whole numbers"),
    "all: 2 sizes": (sent(X, [3, 3]), ALL, 1, "send_sizes must have length 3, one per rank, got 2"),
    "all: halves": (sent(X, [1.5, 1.5, 3]), ALL, 1, "send_sizes must be whole numbers of rows"),
    "all: below 0": (sent(X, [-1, 3, 4]), ALL, 1, "send_sizes[0] must be >= 0, got -1"),
    "all: sum": (sent(X, [1, 2, 2]), ALL, 1, "send_sizes sum to 5 rows, but x has 6"),
    "all: received": (sent(X, SENDS, [2, -2, 2]), ALL, 1, "recv_sizes[1] must be >= 0"),
    "all: 4 received": (sent(X, SENDS, [2] * 4), ALL, 1, "recv_sizes must have length 3"),
    "all: itself": (
        sent(X, SENDS, [2, 1, 2]),
        ALL,
        1,
        "send_sizes[1] is 2 but recv_sizes[1] is 1: what this rank 1 sends to itself",
    ),
    "all: out": (sent(out=X.copy()[:5]), sent(), 8, "all_to_allv: out must have shape [6, 2]"),
    "all: out dtype": (
        sent(out=np.empty((6, 2))),
        sent(),
        13,
        "all_to_allv: out must be float32 as x, got float64",
    ),
    "all: strided": (sent(STRIDED), sent(), 14, "all_to_allv: x is not contiguous"),
    "all: overlapping": (overlapping, ALL, 14, "all_to_allv: out overlaps x in memory"),
    "all: references": (sent(X.astype("O"), SENDS, [2] * 3), ALL, 13, "are references"),
    "gather: root": (plain("gatherv", X, [6] * 3, 3), GATHER, 1, "root must be in [0, 3), got 3"),
    "gather: sizes": (plain("gatherv", X[:5], [6] * 3), GATHER, 1, "sizes[1] is 6, but x has 5"),
    "gather: no rows": (plain("gatherv", 7), plain("gatherv", X), 1, "gatherv: x must be a numpy"),
    "gather: strided": (plain("gatherv", STRIDED, [6] * 3), GATHER, 14, "x is not contiguous"),
    "scatter: root": (scattered(root=1.5), scattered(), 1, "root must be a whole number, got 1.5"),
    "scatter: sizes": (scattered([2] * 4), scattered(), 1, "sizes must have length 3"),
    "scatter: sum": (scattered(x=X[:5]), scattered(), 1, "sizes sum to 6 rows, but x has 5"),
    "scatter: nothing": (scattered(x=None), scattered(), 1, "scatterv: x must be a numpy array"),
    "scatter: strided": (scattered(x=STRIDED), scattered(), 14, "scatterv: x is not contiguous"),
    "scatter: references": (scattered(x=X.astype("O")), scattered(), 13, "are references"),
    "reduce: op": (plain("reduce", X, "mean"), REDUCE, 1, "got 'mean'; did you mean \"avg\"?"),
    "reduce: root": (plain("reduce", X, root=-1), REDUCE, 1, "root must be in [0, 3), got -1"),
    "reduce: bool": (plain("reduce", X.astype("?")), REDUCE, 13, "reduce: there is no sum of bool"),
    "reduce: text": (plain("reduce", X.astype("S3")), REDUCE, 13, "cannot be reduced"),
    "reduce: strided": (plain("reduce", STRIDED), REDUCE, 14, "reduce: x is not contiguous"),
}

# What rank 2 calls, what the others call, and what the message names besides the ranks.
ROOTED_DISAGREEMENTS: Rows = {
    "rows that it sends": (
        sent(X, [3, 0, 3], [3] * 3),
        ALL,
        ["send_sizes[0] is 3 on rank 2", "recv_sizes[2] is 1 on rank 0"],
    ),
    "rows that it expects": (
        sent(X, SENDS, [3, 7, 3]),
        ALL,
        ["send_sizes[2] is 3 on rank 1", "recv_sizes[1] is 7 on rank 2"],
    ),
    "rows that are wider": (sent(X.repeat(2, 1), SENDS, [3] * 3), ALL, ["[*, 4]", "[*, 2]"]),
    "dtype of rows": (sent(X.astype("S4"), SENDS, [3] * 3), ALL, ["dtype", "|S4", "float32"]),
    "with and without sizes": (sent(), ALL, ["all_to_allv without sizes", "is all_to_allv on"]),
    "other rows without sizes": (sent(X.repeat(2, 1)), sent(), ["x's shape after dim 0", "[4]"]),
    "gather or all": (GATHER, ALL, ["gatherv", "all_to_allv"]),
    "sizes of gather": (plain("gatherv", X, [5, 6, 6]), GATHER, ["sizes[0]", "5", "6"]),
    "root of gather": (plain("gatherv", X, [6] * 3, 2), GATHER, ["root is", "2", "0"]),
    "root of scatter": (scattered(root=0), scattered(), ["root is", "0", "1"]),
    "sizes of scatter": (scattered([2, 1, 3]), scattered(), ["sizes[0]", "2", "1"]),
    "root of reduce": (plain("reduce", X, root=2), REDUCE, ["root is", "2", "0"]),
    "op of reduce": (plain("reduce", X, "max"), REDUCE, ["op is", "max", "sum"]),
    "shape of reduce": (plain("reduce", X.reshape(3, 4)), REDUCE, ["x's shape", "[3, 4]"]),
    "reduce or all_reduce": (plain("all_reduce", X), REDUCE, ["all_reduce", "is reduce on"]),
}
