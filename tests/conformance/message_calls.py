"""Send and Recv: golden's cases, both sides of each, at both levels."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from collops.golden.cases import Case, all_cases

import collops
from tests.conformance.once import inputs
from tests.conformance.runs import Run, as_real


@lru_cache
def cases_of(operator: str, run: Run) -> tuple[Case, ...]:
    return tuple(all_cases(operator, rank_sizes=(run.ranks,)))


def call(comm: collops.Communicator, case: Case, run: Run) -> list[Any]:
    """The receiver's output; the x that every other rank still has."""
    x = as_real(inputs(case)[comm.rank]["x"].copy(), case.dtype)
    if comm.rank not in (case.root, case.peer):
        run.enter()
        return [x]
    x = run.place(comm, x)
    return [run.values((call_atb if run.level == "atb" else call_plain)(comm, case, run, x))]


def call_atb(comm: collops.Communicator, case: Case, run: Run, x: Any) -> Any:
    fields = run.named_param(comm)
    if case.root == comm.rank:
        run.execute(
            comm, collops.Operation(collops.SendParam(dest_rank=case.peer, **fields)), [x], []
        )
        return x
    op = collops.Operation(collops.RecvParam(src_rank=case.root, **fields))
    own = as_real(inputs(case)[comm.rank]["x"], case.dtype)
    out = run.poisoned(comm, own.shape, own.dtype)
    run.execute(comm, op, [x], [out])
    return out


def call_plain(comm: collops.Communicator, case: Case, run: Run, x: Any) -> Any:
    tag = 0 if run.on_device else len(case.name)  # HCCL and NCCL have no tags
    if case.root == comm.rank:
        run.enter()
        comm.send(x, case.peer, tag=tag)
        return x
    own = as_real(inputs(case)[comm.rank]["x"], case.dtype)
    out = run.poisoned(comm, own.shape, own.dtype)
    run.enter()
    return comm.recv(out, case.root, tag=tag)
