"""LinearParallel of all types at both levels, drawn, with exact data: fused and as a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from collops.golden.cases import Case, all_outputs, inputs
from collops.golden.operators.linear_parallel.groups import LinearParallel, place
from collops.golden.operators.linear_parallel.reference import output_block

import collops
from tests.soak.soak_plain import Prepared
from tests.soak.soak_turn import POISON, Turn

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, PURE, GRID = range(5)
KINDS = {
    "matmul_all_reduce": ALL_REDUCE,
    "matmul_reduce_scatter": REDUCE_SCATTER,
    "all_gather_matmul": ALL_GATHER,
    "all_gather_matmul_reduce_scatter": GRID,
}
ROWS = (0, 1, 7, 33, 130, 300)
COLUMNS = (1, 5, 16, 65, 257)


def divisors(ranks: int) -> list[int]:
    return [d for d in range(1, ranks + 1) if ranks % d == 0]


def drawn_case(turn: Turn, kind: int, *, keeps: bool = False, ag_dim: int = 0) -> Case:
    ranks = turn.ranks
    ag_dim = ag_dim or turn.shared.choice(divisors(ranks))
    grid = (ag_dim, ranks // ag_dim) if kind == GRID else (0, 0)
    call = LinearParallel(
        kind,
        ranks,
        *grid,
        inner_dim_is_ag=turn.shared.random() < 0.5,
        trans_weight=turn.shared.random() < 0.5,
        has_residual=turn.shared.random() < 0.5,
        keep_intermediate=keeps,
    )
    groups = [place(call, rank) for rank in range(ranks)]
    total = turn.shared.choice(ROWS)
    gathered = {
        group: turn.parts(total, len(group)) for group in sorted({own.gathered for own in groups})
    }
    reduced = {
        group: turn.parts(total, len(group)) for group in sorted({own.reduced for own in groups})
    }
    if kind in (ALL_GATHER, GRID):
        call = replace(call, gather_rows=tuple(tuple(gathered[own.gathered]) for own in groups))
    if kind in (REDUCE_SCATTER, GRID):
        call = replace(call, scatter_rows=tuple(tuple(reduced[own.reduced]) for own in groups))
    k = turn.shared.choice(COLUMNS)
    shapes = tuple((gathered[own.gathered][own.ag_index], k) for own in groups)
    if kind not in (ALL_GATHER, GRID):
        shapes = ((total, k),) * ranks
    return Case(
        operator="linear_parallel",
        name="soak",
        rank_size=ranks,
        dtype=turn.shared.choice(("float16", "bfloat16", "float32")),
        counts=(),
        displs=(),
        x_shapes=shapes,
        rows=tuple(output_block(call, rank, shapes)[2][0] for rank in range(ranks)),
        kind="exact",
        seed=turn.shared.randrange(1000),
        linear=call,
        columns=turn.shared.choice(COLUMNS),
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


def rows_lists(case: Case, rank: int) -> dict[str, list[int]]:
    call = case.linear
    assert call is not None
    lists = {}
    if call.gather_rows:
        lists["gather_rows"] = list(call.gather_rows[rank])
    if call.scatter_rows:
        lists["scatter_rows"] = list(call.scatter_rows[rank])
    return lists


def product(turn: Turn, name: str) -> Prepared:
    """A product of the plain level."""
    case = drawn_case(turn, KINDS[name])
    call = case.linear
    assert call is not None
    x, weight, *residual = tensors(turn, case)
    words: dict[str, Any] = {"trans_weight": call.trans_weight, **rows_lists(case, turn.rank)}
    words["residual"] = residual[0] if residual else None
    shape = (case.rows[turn.rank], case.columns)
    words["out"] = turn.memory(shape, case.dtype)
    if call.type == GRID:
        words |= {"ag_dim": call.ag_dim, "rs_dim": call.rs_dim}
        words["inner_dim_is_ag"] = call.inner_dim_is_ag
    judge = judge_of(turn, case)
    return Prepared(
        lambda calls: getattr(calls, name)(x, weight, **words), lambda got: judge([got])
    )


def linear_parallel(turn: Turn) -> Prepared:
    """An Operation of any type, by the engine that is drawn."""
    kind = turn.shared.choice((ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, PURE, GRID))
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
    call = case.linear
    assert call is not None
    given = tensors(turn, case)
    param = collops.LinearParallelParam(
        backend="shm",
        rank=turn.rank,
        hccl_comm=turn.comm,
        type=call.type,
        trans_weight=call.trans_weight,
        has_residual=call.has_residual,
        keep_intermediate=call.keep_intermediate,
        two_dim_tp_info=collops.TwoDimTPInfo(
            ag_dim=call.ag_dim, rs_dim=call.rs_dim, inner_dim_is_ag=int(call.inner_dim_is_ag)
        ),
        **rows_lists(case, turn.rank),
    )

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
