"""The gather group and the reduce group of each rank of LinearParallel, and its block of rows."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ...data.leaves import MOST_LEAVES, cut_evenly

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, PURE, ALL_GATHER_REDUCE_SCATTER = range(5)
ALL_TO_ALL_EXPERTS, EXPERTS_ALL_TO_ALL = 5, 6


@dataclass(frozen=True)
class LinearParallel:
    """The parameters of LinearParallel, without its tensors.

    `type` is ATB's ParallelType, 0 to 6; `ag_dim`, `rs_dim` and `inner_dim_is_ag` matter for type 4
    alone. `gather_rows` and `scatter_rows` are the lists that each rank passes, one list per rank;
    without them the rows are even. `quant_type` and `quant_group_size` are ATB's; `out_dtype` is
    the dtype of the output where x is int8, and without `has_bias` the input bias is empty; types 5
    and 6 have none. `local_experts`, `ep_size` and `tp_size` matter for
    types 5 and 6 alone. `sum_leaves` is the number of leaves of the sum over k (data/leaves.py), 0
    without, and `sum_columns` the lists that each rank passes of k of all ranks of its reduce
    group, one list per rank. The reference needs none: it knows every x.

    Example:
        >>> LinearParallel(ALL_GATHER_REDUCE_SCATTER, 4, ag_dim=2, rs_dim=2).trans_weight
        True
    """

    type: int
    rank_size: int
    ag_dim: int = 0
    rs_dim: int = 0
    inner_dim_is_ag: bool = True
    trans_weight: bool = True
    has_residual: bool = False
    keep_intermediate: bool = False
    gather_rows: tuple[tuple[int, ...], ...] = ()
    scatter_rows: tuple[tuple[int, ...], ...] = ()
    quant_type: int = -1
    quant_group_size: int = 0
    out_dtype: str = ""
    has_bias: bool = True
    local_experts: int = 1
    ep_size: int = 1
    tp_size: int = 1
    sum_leaves: int = 0
    sum_columns: tuple[tuple[int, ...], ...] = ()

    @property
    def has_experts(self) -> bool:
        """Whether the weight has several experts, and rows go to the ranks of their experts."""
        return self.type in (ALL_TO_ALL_EXPERTS, EXPERTS_ALL_TO_ALL)

    @property
    def is_quantised(self) -> bool:
        """Whether the weight is int8."""
        return self.quant_type >= 0


@dataclass(frozen=True)
class Place:
    """A rank's two groups, each in the order of its indices, and the rank's index in both.

    Example:
        >>> place(LinearParallel(ALL_GATHER, 2), 1)
        Place(gathered=(0, 1), reduced=(1,), ag_index=1, rs_index=0)
    """

    gathered: tuple[int, ...]
    reduced: tuple[int, ...]
    ag_index: int
    rs_index: int


def place(call: LinearParallel, rank: int) -> Place:
    """Return the groups and indices of a rank.

    Type 4: with innerDimIsAg `agIdx = r mod agDim, rsIdx = r div agDim`, and otherwise
    `agIdx = r div rsDim, rsIdx = r mod rsDim`; ranks of one rsIdx gather, ranks of one agIdx
    reduce. The other types gather or reduce over all ranks, or over none.

    Raises:
        ValueError: the type is not from 0 to 4, or agDim * rsDim is not the number of ranks.

    Example:
        >>> call = LinearParallel(ALL_GATHER_REDUCE_SCATTER, 8, 4, 2, inner_dim_is_ag=False)
        >>> place(call, 5)
        Place(gathered=(1, 3, 5, 7), reduced=(4, 5), ag_index=2, rs_index=1)
    """
    everyone = tuple(range(call.rank_size))
    if call.type in (ALL_REDUCE, REDUCE_SCATTER):
        return Place((rank,), everyone, 0, rank)
    if call.type == ALL_GATHER:
        return Place(everyone, (rank,), rank, 0)
    if call.type == PURE:
        return Place((rank,), (rank,), 0, 0)
    if call.type != ALL_GATHER_REDUCE_SCATTER:
        raise ValueError(f"linear_parallel: type {call.type} has no reference; use 0 to 4")
    if call.ag_dim < 1 or call.rs_dim < 1 or call.ag_dim * call.rs_dim != call.rank_size:
        raise ValueError(
            f"linear_parallel: agDim {call.ag_dim} * rsDim {call.rs_dim} must be rankSize "
            f"{call.rank_size}"
        )
    ag_index, rs_index = _indices(call, rank)
    return Place(
        tuple(r for r in everyone if _indices(call, r)[1] == rs_index),
        tuple(r for r in everyone if _indices(call, r)[0] == ag_index),
        ag_index,
        rs_index,
    )


def leaf_borders(call: LinearParallel, rank: int, columns: Sequence[int]) -> list[int]:
    """Return the borders of a rank's leaves in its own columns, from 0 to their number.

    Args:
        call: the parameters, with leaves.
        rank: the rank.
        columns: k of every rank of its reduce group.

    Raises:
        ValueError: an empty leaf, a rank without one or that begins inside of one, or sumColumns
            that are others.

    Example:
        >>> call = LinearParallel(ALL_REDUCE, 2, sum_leaves=4)
        >>> leaf_borders(call, 0, [3, 7]), leaf_borders(call, 1, [3, 7])
        ([0, 3], [0, 3, 5, 7])
    """
    most = min(sum(columns), MOST_LEAVES)
    if not 1 <= call.sum_leaves <= most:
        what = "" if most == MOST_LEAVES else ", the columns of all ranks"
        raise ValueError(
            f"linear_parallel: sumLeaves {call.sum_leaves} must be from 1 to {most}{what}"
        )
    if call.sum_columns and list(call.sum_columns[rank]) != [*columns]:
        given = list(call.sum_columns[rank])
        raise ValueError(f"linear_parallel: sumColumns {given} of rank {rank} are {[*columns]}")
    own = place(call, rank)
    if 0 in columns:
        member = own.reduced[columns.index(0)]
        raise ValueError(f"linear_parallel: rank {member} has no columns, so it has no leaf")
    borders = cut_evenly(sum(columns), call.sum_leaves)
    ends = list(accumulate(columns, initial=0))
    for member, begin in zip(own.reduced, ends, strict=False):
        if begin not in borders:
            leaf = bisect(borders, begin) - 1
            raise ValueError(
                f"linear_parallel: rank {member} begins at column {begin}, inside of leaf {leaf}, "
                f"which has the columns {borders[leaf]} to {borders[leaf + 1]}"
            )
    first, end = ends[own.rs_index], ends[own.rs_index + 1]
    return [border - first for border in borders if first <= border <= end]


def block_of(call: LinearParallel, rank: int, rows: int) -> tuple[int, int]:
    """Return the first row and the end of a rank's block of a product of `rows` rows.

    Args:
        call: the parameters.
        rank: the rank of the block.
        rows: rows of the product; the block of types 0 and 3 has all of them.

    Raises:
        ValueError: the rows do not divide, or scatterRows do not fit them.

    Example:
        >>> uneven = LinearParallel(REDUCE_SCATTER, 3, scatter_rows=((2, 0, 5),) * 3)
        >>> [block_of(uneven, rank, 7) for rank in range(3)]
        [(0, 2), (2, 2), (2, 7)]
    """
    if call.type in (ALL_REDUCE, PURE):
        return 0, rows
    own = place(call, rank)
    heights = _heights(call, rank, rows, len(own.reduced))
    ends = list(accumulate(heights, initial=0))
    return ends[own.rs_index], ends[own.rs_index + 1]


def _heights(call: LinearParallel, rank: int, rows: int, members: int) -> Sequence[int]:
    if call.scatter_rows:
        heights = call.scatter_rows[rank]
        if len(heights) != members or min(heights) < 0 or sum(heights) != rows:
            raise ValueError(
                f"linear_parallel: scatterRows {list(heights)} of rank {rank} must be {members} "
                f"numbers whose sum is {rows}"
            )
        return heights
    if rows % members:
        raise ValueError(f"linear_parallel: {rows} rows do not divide among {members} ranks")
    return [rows // members] * members


def _indices(call: LinearParallel, rank: int) -> tuple[int, int]:
    if call.inner_dim_is_ag:
        return rank % call.ag_dim, rank // call.ag_dim
    return rank // call.rs_dim, rank % call.rs_dim
