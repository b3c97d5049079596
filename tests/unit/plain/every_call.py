"""One call of every kind of the plain level."""

from __future__ import annotations

from typing import Any

import numpy as np

from collops import MoeHandle, RecvFrom, SendTo

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def calls_of(rank: int, size: int) -> list[Call]:
    """One call of every kind, with what this rank passes."""
    rows = np.arange(3.0 * (rank + 1)).reshape(rank + 1, 3) + 100 * rank
    sizes = [r + 1 for r in range(size)]
    same = np.arange(2.0 * size).reshape(2 * size, 1) * (rank + 1)
    moved = np.arange(size) + 10 * rank
    grid = {"ag_dim": 1, "rs_dim": size, "gather_rows": [size]}
    x, weight = np.full((size, 4), rank, np.float32), np.ones((4, 2), np.float32)
    right, left = (rank + 1) % size, (rank - 1) % size
    return [
        ("all_gatherv", (rows, sizes), {}),
        ("all_gatherv", (rows,), {}),
        ("all_gatherv", (rows.T.copy(), sizes), {"dim": 1}),
        ("all_gatherv", (rows.T.copy(),), {"dim": 1}),
        ("all_gatherv", ([rows, rows.astype(np.int16)], sizes), {}),
        ("all_gatherv", (rows.astype("S8"), sizes), {}),
        ("reduce_scatterv", (same,), {"op": "max"}),
        ("reduce_scatterv", (same, [2] * size), {}),
        ("reduce_scatterv", (np.split(same, size),), {}),
        ("reduce_scatterv", (same.T.copy(),), {"dim": 1, "out": np.empty((1, 4))[:, ::2]}),
        ("all_gather", (moved,), {}),
        ("reduce_scatter", (same,), {}),
        ("all_reduce", (same, "prod"), {}),
        ("all_reduce", (), {"partials": [same, same + 1], "leaves": 2 * size}),
        ("all_reduce", (), {"partials": [same], "leaves": size, "leaf_begin": rank}),
        ("reduce_scatterv", (), {"partials": [same, same + 1], "leaves": 2 * size}),
        ("broadcast", (moved.copy(),), {"root": size - 1}),
        ("all_to_allv", (moved, [1] * size), {}),
        ("all_to_allv", (moved, [1] * size, [1] * size), {}),
        ("gatherv", (rows, sizes), {"root": 1}),
        ("gatherv", (rows,), {}),
        ("scatterv", (same if rank == 0 else None, [2] * size), {}),
        ("scatterv", (same if rank == 0 else None,), {}),
        ("reduce", (same,), {}),
        ("barrier", (), {}),
        ("moe_dispatch", (rows, np.full((rank + 1, 1), rank), 2 * size), {}),
        ("matmul_all_reduce", (x, weight), {"residual": np.ones(2, np.float32)}),
        ("all_gather_matmul", (x, weight), {}),
        ("all_gather_matmul", (x, weight, [size] * size), {}),
        ("matmul_reduce_scatter", (x, weight), {"op": "avg"}),
        ("all_gather_matmul_reduce_scatter", (x, weight), grid),
        ("matmul", (x, weight), {"leaves": 2}),
        ("all_to_allv_grouped_matmul", (x, weight[None], [[1]] * size), {}),
        ("grouped_matmul_all_to_allv", (x, weight[None], *[[[1]] * size] * 2), {}),
        ("all_to_all_matmul", (x, np.ones((4 * size, 2), np.float32)), {}),
        ("matmul_all_to_all", (x, np.ones((4, size), np.float32)), {}),
        ("exchange", ([SendTo(moved, right), RecvFrom(np.empty_like(moved), left)],), {}),
    ]


def flat(value: Any) -> Any:
    """What can be compared: lists for arrays."""
    if isinstance(value, MoeHandle):
        value = list(vars(value).values())
    if isinstance(value, (list, tuple)):
        return [flat(entry) for entry in value]
    return value.tolist() if hasattr(value, "tolist") else value
