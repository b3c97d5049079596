"""AllToAll, AllToAllV and AllToAllVV2: the calls of golden's cases at ATB's level."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from collops.golden.cases import Case, all_cases, struct_fields

import collops
from tests.conformance.once import inputs
from tests.conformance.runs import Run, as_real

STRUCTS: dict[str, type[Any]] = {
    "all_to_all": collops.AllToAllParam,
    "all_to_all_v": collops.AllToAllVParam,
    "all_to_all_v_v2": collops.AllToAllVV2Param,
}


@lru_cache
def cases_of(operator: str, run: Run) -> tuple[Case, ...]:
    """The cases that ATB can state: of the V operators those in which every rank receives.

    The transpose runs on the CPU alone.
    """
    cases = all_cases(operator, rank_sizes=(run.ranks,))
    here = (case for case in cases if not run.on_device or not case.transpose)
    return tuple(case for case in here if is_stated(case))


def is_stated(case: Case) -> bool:
    return case.operator == "all_to_all" or 0 not in case.rows


def own_fields(case: Case, rank: int) -> dict[str, Any]:
    """The struct's own fields by their names in Python."""
    names = {"sendCounts": "send_counts", "recvCounts": "recv_counts"}
    return {names.get(key, key): value for key, value in struct_fields(case, rank).items()}


def call(comm: collops.Communicator, case: Case, run: Run) -> list[Any]:
    fields = {**run.param(comm), "rank_root": case.root, **own_fields(case, comm.rank)}
    op = collops.Operation(STRUCTS[case.operator](**fields))
    given, *others = inputs(case)[comm.rank].values()
    given = as_real(given, case.dtype)
    x = run.place(comm, given)
    [described] = op.infer_shape([x, *others])
    out = run.poisoned(comm, described.shape, given.dtype)
    size = run.execute(comm, op, [x, *others], [out])
    assert size == (given.nbytes if case.transpose else 0)
    assert run.values(x).tobytes() == given.tobytes(), "x was changed"
    return [run.values(out)]
