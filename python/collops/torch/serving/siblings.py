"""The collops group of the ranks of a group of torch.distributed."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

import collops.torch
from collops.errors import ErrorCode, raise_status
from collops.torch.graph_breaks import break_graphs

if TYPE_CHECKING:
    from collops.torch.group import Group

# By the group whose ranks they have. A group of another backend keeps one for as long as it lives.
_SIBLINGS: weakref.WeakKeyDictionary[Any, Group] = weakref.WeakKeyDictionary()


@break_graphs
def collops_group(*groups: Any) -> Group:
    """The first of the groups that is collops's own, or a sibling of the first with its ranks.

    A sibling is made once, by the ranks of that group alone: all of them call this, and ranks
    outside the group need not. It is destroyed with all groups, by ``destroy_process_group()``.

    Args:
        groups: groups of torch.distributed that have the same ranks, or None for those that do not
            exist.

    Returns:
        A group of collops with these ranks, in their order.

    Raises:
        collops.Error: there is no group, or torch.distributed does not know the first one.

    Example:
        >>> import tempfile, torch, torch.distributed as dist
        >>> from collops.testing import run_ranks
        >>> from collops.torch.serving import collops_group
        >>> def rows(rank, path):
        ...     where = f"file://{path}"
        ...     dist.init_process_group("gloo", init_method=where, rank=rank, world_size=2)
        ...     group = collops_group(dist.group.WORLD)
        ...     every = group.communicator.all_gatherv(torch.full((rank, 1), 7), sizes=[0, 1])
        ...     dist.destroy_process_group()
        ...     return every.tolist()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run_ranks(rows, 2, f"{folder}/store")
        [[[7]], [[7]]]
    """
    known = [group for group in groups if group is not None]
    for group in known:
        if isinstance(group, collops.torch.Group):
            return group
    if not known:
        raise_status(ErrorCode.ERROR_INVALID_PARAM, "collops_group: no group was given")
    if (sibling := _SIBLINGS.get(known[0])) is None:
        sibling = _SIBLINGS[known[0]] = _new_sibling(known[0])
    return sibling


def _new_sibling(group: Any) -> Group:
    try:
        ranks = dist.get_process_group_ranks(group)
    except (KeyError, RuntimeError, ValueError):
        raise_status(
            ErrorCode.ERROR_INVALID_PARAM,
            "collops_group: torch.distributed does not know the group: make it by new_group(), or "
            'pass one that new_group(ranks, backend="collops") made',
        )
    group = dist.new_group(ranks, backend="collops", use_local_synchronization=True)
    assert isinstance(group, collops.torch.Group)
    return group
