"""Shapes of results. Sizes may be symbols of torch.compile, so this is plain arithmetic.

Wrong sizes give some shape here: the call itself refuses them, with a message for all ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

# Numbers of rows, or symbols of them.
Rows: TypeAlias = "Sequence[Any]"


def split_rows(total: Any, parts: int) -> list[Any]:
    """The rows of each part, as numpy.array_split shares them out."""
    # The first `total % parts` have one more; no comparison that would fix a symbol.
    return [(total + parts - 1 - part) // parts for part in range(parts)]


def rows_of(total: Any, parts: int, sizes: Rows | None) -> list[Any]:
    """The rows of each part: `sizes`, or an even share."""
    return split_rows(total, parts) if sizes is None else list(sizes)


def own_rows(rows: Rows, place: int) -> Any:
    """The rows of one part."""
    return rows[place] if place < len(rows) else 0


def with_rows(shape: Sequence[Any], dim: int, rows: Any) -> list[Any]:
    """A shape with another number of rows along `dim`."""
    changed = list(shape)
    if -len(changed) <= dim < len(changed):
        changed[dim] = rows
    return changed


def columns(weight: torch.Tensor, trans_weight: bool) -> Any:
    """n of a weight [k, n], with `trans_weight` [n, k]."""
    return weight.shape[-2 if trans_weight else -1]


def inner_rows(x: torch.Tensor) -> Any:
    """Rows that stand for one entry of a list of rows: of an x of three dims, those of a matrix."""
    return x.shape[1] if x.ndim == 3 else 1


def scattered_dim(x: torch.Tensor) -> int:
    """The dim that matmul_reduce_scatter shares out: rows where there is one matrix."""
    return 1 if x.ndim == 3 and x.shape[0] == 1 else 0


def places(rank: int, ag_dim: int, rs_dim: int, inner_dim_is_ag: bool) -> tuple[int, int]:
    """A rank's places in its gather group and in its scatter group."""
    ag_dim, rs_dim = max(ag_dim, 1), max(rs_dim, 1)
    if inner_dim_is_ag:
        return rank % ag_dim, rank // ag_dim
    return rank // rs_dim, rank % rs_dim
