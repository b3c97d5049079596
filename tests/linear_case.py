"""Golden's cases of LinearParallel as calls of collops, and such cases at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from collops.golden.cases import Case
from collops.golden.data.acl_types import dtype_number
from collops.golden.operators.linear_parallel.groups import LinearParallel, place
from collops.golden.operators.linear_parallel.reference import output_block

import collops

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, PURE, GRID = range(5)
METHODS = {
    ALL_REDUCE: "matmul_all_reduce",
    REDUCE_SCATTER: "matmul_reduce_scatter",
    ALL_GATHER: "all_gather_matmul",
    GRID: "all_gather_matmul_reduce_scatter",
    PURE: "matmul",
}


def rows_lists(case: Case, rank: int) -> dict[str, list[int]]:
    call = case.linear
    assert call is not None
    lists = {
        "gather_rows": call.gather_rows,
        "scatter_rows": call.scatter_rows,
        "sum_columns": call.sum_columns,
    }
    return {name: list(rows[rank]) for name, rows in lists.items() if rows}


def param_of(case: Case, rank: int, /, **fields: Any) -> collops.LinearParallelParam:
    call = case.linear
    assert call is not None
    return collops.LinearParallelParam(
        type=call.type,
        trans_weight=call.trans_weight,
        has_residual=call.has_residual,
        keep_intermediate=call.keep_intermediate,
        two_dim_tp_info=collops.TwoDimTPInfo(
            ag_dim=call.ag_dim, rs_dim=call.rs_dim, inner_dim_is_ag=int(call.inner_dim_is_ag)
        ),
        quant_type=call.quant_type,
        quant_group_size=call.quant_group_size,
        out_data_type=dtype_number(call.out_dtype) if call.out_dtype else -1,
        moe_info=collops.MoeInfo(
            local_expert_nums=call.local_experts, ep_size=call.ep_size, tp_size=call.tp_size
        ),
        sum_leaves=call.sum_leaves,
        **rows_lists(case, rank),
        **fields,
    )


def words_of(case: Case, rank: int) -> dict[str, Any]:
    """The method's arguments beside the tensors."""
    call = case.linear
    assert call is not None
    lists = rows_lists(case, rank)
    if call.type != GRID:
        lists = {
            name.replace("gather_rows", "sizes").replace("scatter_rows", "sizes"): rows
            for name, rows in lists.items()
        }
    words: dict[str, Any] = {"trans_weight": call.trans_weight, **lists}
    if call.type == GRID:
        words |= {"ag_dim": call.ag_dim, "rs_dim": call.rs_dim}
        words["inner_dim_is_ag"] = call.inner_dim_is_ag
    return words


def divisors(ranks: int) -> list[int]:
    return [d for d in range(1, ranks + 1) if ranks % d == 0]


def parts(draw: Random, total: int, members: int) -> list[int]:
    """Numbers of rows whose sum is `total`; some may be 0."""
    cuts = sorted(draw.randint(0, total) for _ in range(members - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]


def drawn(
    draw: Random,
    ranks: int,
    kind: int,
    cut: Callable[[int, int], Sequence[int]],
    rows: Sequence[int],
    columns: Sequence[int],
    *,
    keeps: bool = False,
    ag_dim: int = 0,
    data: Sequence[str] = ("exact",),
) -> Case:
    """A case of this type; `cut(total, members)` are a group's numbers of rows."""
    ag_dim = ag_dim or draw.choice(divisors(ranks))
    grid = (ag_dim, ranks // ag_dim) if kind == GRID else (0, 0)
    call = LinearParallel(
        kind,
        ranks,
        *grid,
        inner_dim_is_ag=draw.random() < 0.5,
        trans_weight=draw.random() < 0.5,
        has_residual=draw.random() < 0.5,
        keep_intermediate=keeps,
    )
    groups = [place(call, rank) for rank in range(ranks)]
    total = draw.choice(rows)  # of every gather group's x together; with one member, of each x
    gathered, reduced = (
        {group: tuple(cut(total, len(group))) for group in sorted(set(of_each))}
        for of_each in ([own.gathered for own in groups], [own.reduced for own in groups])
    )
    if kind in (ALL_GATHER, GRID):
        call = replace(call, gather_rows=tuple(gathered[own.gathered] for own in groups))
    if kind in (REDUCE_SCATTER, GRID):
        call = replace(call, scatter_rows=tuple(reduced[own.reduced] for own in groups))
    k = draw.choice(columns)
    shapes = tuple((gathered[own.gathered][own.ag_index], k) for own in groups)
    if kind not in (ALL_GATHER, GRID):
        shapes = ((total, k),) * ranks
    return Case(
        operator="linear_parallel",
        name="drawn",
        rank_size=ranks,
        dtype=draw.choice(("float16", "bfloat16", "float32")),
        counts=(),
        displs=(),
        x_shapes=shapes,
        rows=tuple(output_block(call, rank, shapes)[2][0] for rank in range(ranks)),
        kind=draw.choice(data),
        seed=draw.randrange(1000),
        linear=call,
        columns=draw.choice(columns),
    )
