"""Scenes in which the rank of the highest number disagrees about a LinearParallel call."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scene import Scene
from witness import Witness

import collops
from collops import ParallelType, TwoDimTPInfo

FUSED = {"fused": "1", "pipeline": "0"}


@dataclass(frozen=True)
class Call:
    """A call of LinearParallel; `rows` are x's, by rank if it is a list."""

    rows: int | list[int] = 3
    k: int = 4
    n: int = 5
    dtype: Any = np.float32
    fields: dict[str, Any] = field(default_factory=dict)
    fused: str = ""  # where only this rank has it

    def __call__(self, w: Witness, comm: collops.Communicator) -> Any:
        rows = self.rows if isinstance(self.rows, int) else self.rows[w.rank]
        x = w.place(comm, (np.arange(rows * self.k).reshape(rows, self.k) + w.rank).astype("f4"))
        weight = np.ones((self.n, self.k), self.dtype)
        fields: dict[str, Any] = {"type": 4, "two_dim_tp_info": grid(w.size, 1), **self.fields}
        before = os.environ["COLLOPS_FUSED"]
        os.environ["COLLOPS_FUSED"] = self.fused or before
        try:
            param = collops.LinearParallelParam(hccl_comm=comm, backend="shm", **fields)
            return collops.Operation(param).forward([x.astype(self.dtype), weight])
        finally:
            os.environ["COLLOPS_FUSED"] = before


def grid(ag_dim: int, rs_dim: int, inner: int = 1) -> TwoDimTPInfo:
    return TwoDimTPInfo(ag_dim=ag_dim, rs_dim=rs_dim, inner_dim_is_ag=inner)


def typed(kind: ParallelType, **words: Any) -> Call:
    """A call of another type than 4."""
    fields = {"type": kind, **words.pop("fields", {})}
    return Call(fields=fields, **words)


SUM, SCATTER = ParallelType.LINEAR_ALL_REDUCE, ParallelType.LINEAR_REDUCE_SCATTER
GATHER = ParallelType.ALL_GATHER_LINEAR


def cases(ranks: int) -> dict[str, tuple[Any, Any]]:
    """The call of the odd rank, and the call of the others."""
    usual, whole = Call(), 6 * ranks
    apart = {"two_dim_tp_info": grid(1, ranks)}
    first, second = [3] * ranks, [4, 2, *[3] * (ranks - 2)]
    return {
        "type": (typed(SUM), usual),
        "type: gather and scatter": (typed(GATHER), typed(SCATTER, rows=ranks)),
        "agDim": (Call(rows=3 * ranks, fields=apart), usual),
        "innerDimIsAg": (Call(fields={"two_dim_tp_info": grid(ranks, 1, 0)}), usual),
        "rankRoot": (Call(fields={"rank_root": 1}), usual),
        "k": (Call(k=7), usual),
        "n": (Call(n=6), usual),
        "the sum of the rows": (Call(rows=4), usual),
        "the sum of the rows of type 0": (typed(SUM, rows=4), typed(SUM)),
        "dtype": (Call(dtype=np.float16), usual),
        "gatherRows[i]": (
            Call(rows=second, fields={"gather_rows": second}),
            Call(rows=first, fields={"gather_rows": first}),
        ),
        "gatherRows[i] of type 2": (
            typed(GATHER, rows=second, fields={"gather_rows": second}),
            typed(GATHER, rows=first, fields={"gather_rows": first}),
        ),
        "scatterRows[i]": (
            Call(rows=whole, fields={**apart, "scatter_rows": [2 * rows for rows in second]}),
            Call(rows=whole, fields=apart),
        ),
        "scatterRows[i] of type 1": (
            typed(SCATTER, rows=whole, fields={"scatter_rows": [2 * rows for rows in second]}),
            typed(SCATTER, rows=whole),
        ),
        "another operator": (lambda w, comm: comm.all_reduce(np.ones(3)), usual),
        "another operator of the others": (usual, lambda w, comm: comm.all_gatherv(np.ones(3))),
        "one rank has another engine": (Call(fused="0"), Call(fused="1")),
        **plain_cases(ranks),
    }


def plain_cases(ranks: int) -> dict[str, tuple[Any, Any]]:
    """The same at the plain level, which has names of its own."""
    x, weight = np.ones((3, 4), "f4"), np.ones((4, 5), "f4")

    def both(**words: Any) -> Any:
        return lambda w, comm: comm.all_gather_matmul_reduce_scatter(
            words.get("x", x), weight, ag_dim=ranks, rs_dim=1, **words.get("words", {})
        )

    def gather(x: Any = x, **words: Any) -> Any:
        return lambda w, comm: comm.all_gather_matmul(x, weight, **words)

    def scatter(x: Any = x, weight: Any = weight, **words: Any) -> Any:
        return lambda w, comm: comm.matmul_reduce_scatter(x, weight, **words)

    def total(weight: Any = weight) -> Any:
        return lambda w, comm: comm.matmul_all_reduce(x, weight)

    others = [2, *[1] * (ranks - 1)]
    return {
        "plain level: method": (total(), scatter()),
        "plain level: rows without gather_rows": (gather(np.ones((5, 4), "f4")), gather()),
        "plain level: rows": (scatter(np.ones((2, 4), "f4")), scatter()),
        "plain level: n": (total(np.ones((4, 7), "f4")), total()),
        "plain level: inner_dim_is_ag": (both(words={"inner_dim_is_ag": False}), both()),
        "plain level: scatter_rows[i]": (
            scatter(np.ones((ranks + 1, 4), "f4"), scatter_rows=others[::-1]),
            scatter(np.ones((ranks + 1, 4), "f4"), scatter_rows=others),
        ),
    }


def square_cases(ranks: int) -> dict[str, tuple[Any, Any]]:
    """Two groups that gather and two that scatter, of which the odd rank is in one each."""
    square = {"two_dim_tp_info": grid(2, 2)}
    usual = Call(fields=square)
    lists = {"gather_rows": [2, 4], **square}
    return {
        "type": (Call(fields={**square, "type": GATHER}), usual),
        "agDim": (Call(), usual),
        "k": (Call(k=7, fields=square), usual),
        "gatherRows[i]": (Call(rows=4, fields=lists), usual),
        "scatterRows[i]": (Call(fields={**square, "scatter_rows": [1, 5]}), usual),
    }


def disagree(
    make: Callable[[int], dict[str, tuple[Any, Any]]], windows: bool
) -> Callable[[Witness], None]:
    """All cases, one domain each."""

    def play(w: Witness) -> None:
        w.windows = windows
        for case, (odd, others) in make(w.size).items():
            comm = w.join(case)
            w.hears(case, lambda c=comm, call=odd if w.last else others: call(w, c))
            if case == "k":
                w.hears("k, then the call that was right", lambda c=comm, call=others: call(w, c))

    return play


SCENES = [
    Scene(
        f"{ranks} ranks that disagree on LinearParallel, {engine}, {memory}",
        ranks,
        disagree(square_cases if ranks == 4 else cases, memory == "windows"),
        env={"COLLOPS_FUSED": fused},
        racing=True,
    )
    for engine, fused in FUSED.items()
    for ranks in (2, 3, 4)
    for memory in ("plain memory", "windows")
    if memory == "plain memory" or (engine == "fused" and ranks < 4)
]
