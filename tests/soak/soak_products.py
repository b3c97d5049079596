"""LinearParallel of all types at both levels, drawn, with exact data: fused and as a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from collops.golden.cases import Case, all_outputs, inputs

import collops
from tests import linear_case
from tests.linear_case import ALL_GATHER, GRID, METHODS, PURE, param_of, words_of
from tests.soak.soak_plain import Prepared
from tests.soak.soak_turn import POISON, Turn

KINDS = {name: kind for kind, name in METHODS.items()}
ROWS = (0, 1, 7, 33, 130, 300)
COLUMNS = (1, 5, 16, 65, 257)


def drawn_case(turn: Turn, kind: int, *, keeps: bool = False, ag_dim: int = 0) -> Case:
    return linear_case.drawn(
        turn.shared, turn.ranks, kind, turn.parts, ROWS, COLUMNS, keeps=keeps, ag_dim=ag_dim
    )


def judge_of(turn: Turn, case: Case) -> Callable[[list[Any]], None]:
    def judge(got: list[Any]) -> None:
        wanted = all_outputs(case)[turn.rank]
        if len(got) != len(wanted):
            raise AssertionError(f"{len(got)} outputs, want {len(wanted)}")
        for one, want in zip(got, wanted, strict=True):
            turn.expect(one, want, case.dtype)

    return judge


def tensors(turn: Turn, case: Case) -> list[Any]:
    given = list(inputs(case)[turn.rank].values())
    return [turn.given(array, array.shape, case.dtype) for array in given]


def product(turn: Turn, name: str) -> Prepared:
    """A product of the plain level."""
    case = drawn_case(turn, KINDS[name])
    x, weight, *residual = tensors(turn, case)
    words = words_of(case, turn.rank) | {"residual": residual[0] if residual else None}
    words["out"] = turn.memory((case.rows[turn.rank], case.columns), case.dtype)
    judge = judge_of(turn, case)
    return Prepared(
        lambda calls: getattr(calls, name)(x, weight, **words), lambda got: judge([got])
    )


def linear_parallel(turn: Turn) -> Prepared:
    """An Operation of any type, by the engine that is drawn."""
    kind = turn.shared.choice((*METHODS,))
    case = drawn_case(turn, kind, keeps=kind == ALL_GATHER and turn.shared.random() < 0.5)
    engine = turn.shared.choice((None, "pipeline")) if kind != PURE else None
    return operation(turn, case, engine)


def on_grid(turn: Turn, ag_dim: int, inner_dim_is_ag: bool) -> Prepared:
    """A pipeline on one grid, which makes the subgroups that a communicator keeps for it."""
    case = drawn_case(turn, GRID, ag_dim=ag_dim)
    assert case.linear is not None
    if case.linear.inner_dim_is_ag != inner_dim_is_ag:
        return on_grid(turn, ag_dim, inner_dim_is_ag)  # drawn again, on every rank
    return operation(turn, case, "pipeline")


def operation(turn: Turn, case: Case, engine: str | None) -> Prepared:
    given = tensors(turn, case)
    param = param_of(case, turn.rank, backend="shm", rank=turn.rank, hccl_comm=turn.comm)

    def run(calls: Any) -> list[Any]:
        made = collops.Operation(param, engine=engine)
        outs = [turn.memory(desc.shape, case.dtype) for desc in made.infer_shape(given)]
        scratch = np.full(made.get_workspace_size(given, outs), POISON, np.uint8)
        made.execute(given, outs, scratch)
        return outs

    return Prepared(run, judge_of(turn, case))


def named(name: str) -> Callable[[Turn], Prepared]:
    return lambda turn: product(turn, name)


PRODUCTS: dict[str, Callable[[Turn], Prepared]] = {name: named(name) for name in KINDS}
LINEAR: dict[str, Callable[[Turn], Prepared]] = {"LinearParallel": linear_parallel}
