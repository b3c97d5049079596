"""Scenes in which a rank fails its own check: the others get its error, and all go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import collops
from tests.messages import disagreements as calls
from tests.messages.linear_disagreements import FUSED, GATHER, Call
from tests.messages.scene import Scene
from tests.messages.witness import Witness

Comm = collops.Communicator


def atb_gather(w: Witness, comm: Comm, *, planned: bool = True) -> Any:
    """AllGatherV in two phases; without a plan it fails its check."""
    op = collops.Operation(collops.AllGatherVParam(hccl_comm=comm, backend="shm"))
    counts = calls.numbers(w, calls.COUNTS)
    x = w.rows(comm, 6)
    outs = [np.zeros_like(x)]
    ins = [x, counts[w.rank : w.rank + 1], counts, calls.numbers(w, calls.DISPLS)]
    ins.append(np.empty(6, np.float16))
    if planned:
        op.get_workspace_size(ins, outs)
    return op.execute(ins, outs)


def gather_strided(w: Witness, comm: Comm) -> Any:
    """all_gatherv of a tensor that is not contiguous."""
    return comm.all_gatherv(w.rows(comm, 6).repeat(2, 1)[:, ::2])


def plain(method: str, *args: Any, **words: Any) -> Any:
    """A method of the communicator with these arguments."""
    return lambda w, comm: getattr(comm, method)(*args, **words)


X = np.ones((6, 2), np.float32)

# What the rank that refuses calls, and what the others call.
CASES: dict[str, tuple[Any, Any]] = {
    "AllGatherV without a plan": (lambda w, c: atb_gather(w, c, planned=False), atb_gather),
    "all_gatherv, strides": (gather_strided, calls.exchange()),
    "reduce_scatterv, op": (plain("reduce_scatterv", X, op="mean"), calls.scatter()),
    "while the others do something else": (plain("all_gatherv", None), calls.barrier),
}

LINEAR_CASES: dict[str, tuple[Any, Any]] = {
    "LinearParallel of float64": (Call(dtype=np.float64), Call()),
    "LinearParallel of type 2": (
        Call(dtype=np.float64, fields={"type": GATHER}),
        Call(fields={"type": GATHER}),
    ),
}


def refuse(cases: dict[str, tuple[Any, Any]], windows: bool) -> Callable[[Witness], None]:
    """All cases, one domain each, which they leave good."""

    def play(w: Witness) -> None:
        w.windows = windows
        for case, (odd, others) in cases.items():
            comm = w.join(case)
            w.hears(case, lambda c=comm, call=odd if w.last else others: call(w, c))
            w.hears(f"{case}, then barrier", comm.barrier)

    return play


def refuse_together(w: Witness) -> None:
    """All ranks but one refuse; then all refuse, and each gets only its own error."""
    comm = w.join("refusals")
    wrong = plain("all_gatherv", X, [w.rank])
    w.hears("ranks 1 and 2 refuse", lambda: (wrong if w.rank else calls.gather())(w, comm))
    w.hears("ranks 1 and 2 refuse, then barrier", comm.barrier)
    w.hears("all refuse", lambda: wrong(w, comm))
    w.hears("all refuse, then barrier", comm.barrier)


SCENES = [
    Scene("3 ranks, one refuses, windows", 3, refuse(CASES, True), racing=True),
    Scene(
        "3 ranks, one refuses LinearParallel, fused",
        3,
        refuse(LINEAR_CASES, False),
        env={"COLLOPS_FUSED": FUSED["fused"]},
        racing=True,
    ),
    Scene("3 ranks, two or all refuse", 3, refuse_together, racing=True),
]
