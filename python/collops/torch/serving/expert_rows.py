"""Rows that go to the ranks of their experts, once to each, and come back as one sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from collops.torch.serving import calls
from collops.torch.serving.rows import pack, unpack

if TYPE_CHECKING:
    from collops.torch.group import Group


def owners_of(group: Group, expert_map: torch.Tensor) -> torch.Tensor:
    """The rank of a group that has each expert, int64; -1: none of them.

    Args:
        group: all of its ranks call this.
        expert_map: [experts of all ranks], an expert's number on this rank; -1: it has it not.
    """
    every = calls.all_gather(group, expert_map[None], 0) >= 0
    return torch.where(every.any(0), every.to(torch.uint8).argmax(0), -1)


def ranks_of(owners: torch.Tensor, topk_ids: torch.Tensor) -> torch.Tensor:
    """The ranks that have a token's experts, each once and in their order; -1 in between.

    Args:
        owners: [experts of all ranks], of owners_of().
        topk_ids: [tokens, k].

    Returns:
        int64 [tokens, k].
    """
    ranks = owners[topk_ids.long()].sort(1).values
    ranks[:, 1:][ranks[:, 1:] == ranks[:, :-1]] = -1
    return ranks


def send_rows(
    group: Group, ranks: torch.Tensor, xs: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], Any]:
    """Sends each row of some tensors to the ranks that are named for it.

    A rank is an expert of moe_dispatch() here: a row goes to it once, for all experts that it has.

    Args:
        group: all of its ranks call this.
        ranks: [rows, k], of ranks_of().
        xs: tensors [rows, ...] of any types, whose rows travel together.

    Returns:
        The rows that this rank gets of each tensor, in the order of the ranks that they are of; and
        what return_rows() needs.
    """
    comm = group.communicator_for(ranks.device)
    packed = pack(xs, ranks.shape[0])
    rows, _, handle = comm.moe_dispatch(packed, ranks, comm.size)
    return unpack(rows, xs), handle


def return_rows(group: Group, rows: torch.Tensor, handle: Any) -> torch.Tensor:
    """The sums, in the order of ranks, of what the ranks have made of this rank's rows."""
    given = calls.read_of(group, "MoeCombine", rows)
    result: torch.Tensor = group.communicator_for(rows.device).moe_combine(given, None, handle)
    return result
