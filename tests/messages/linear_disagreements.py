"""Scenes in which the rank of the highest number disagrees about a LinearParallel call."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import collops
from collops import ParallelType, TwoDimTPInfo
from tests.messages.scene import Scene
from tests.messages.witness import Witness

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


SUM, GATHER = ParallelType.LINEAR_ALL_REDUCE, ParallelType.ALL_GATHER_LINEAR


def cases(ranks: int) -> dict[str, tuple[Any, Any]]:
    """The call of the odd rank, and the call of the others."""
    usual = Call()
    first, second = [3] * ranks, [4, 2, *[3] * (ranks - 2)]
    return {
        "type": (typed(SUM), usual),
        "k": (Call(k=7), usual),
        "gatherRows[i]": (
            Call(rows=second, fields={"gather_rows": second}),
            Call(rows=first, fields={"gather_rows": first}),
        ),
        "another operator": (lambda w, comm: comm.all_reduce(np.ones(3)), usual),
        "one rank has another engine": (Call(fused="0"), Call(fused="1")),
    }


def disagree(w: Witness) -> None:
    """All cases, one domain each."""
    w.windows = True
    for case, (odd, others) in cases(w.size).items():
        comm = w.join(case)
        w.hears(case, lambda c=comm, call=odd if w.last else others: call(w, c))
        if case == "k":
            w.hears("k, then the call that was right", lambda c=comm, call=others: call(w, c))


SCENES = [
    Scene(
        "3 ranks that disagree on LinearParallel, fused, windows",
        3,
        disagree,
        env={"COLLOPS_FUSED": "1"},
        racing=True,
    )
]
