"""Which collops group a call or a compiled graph means: by name, object or mesh."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from collops.errors import ErrorCode, raise_status
from collops.torch.group import Group


def group_of(call: str, group: Any = None) -> Group:
    """The collops group of a group, its name, a mesh of one dim or None (all ranks).

    `call` is for the error.
    """
    if group is None:
        group = dist.group.WORLD
    elif isinstance(group, str):
        # Private in torch 2.13; torch's own operators find their groups by it.
        group = dist.distributed_c10d._resolve_process_group(group)
    elif hasattr(group, "get_group"):
        group = group.get_group()
    if isinstance(group, Group):
        return group
    what = type(group).__name__
    if isinstance(group, dist.ProcessGroup):
        what = f'group "{group.group_name}" of the backend {dist.get_backend(group)}'
    return raise_status(
        ErrorCode.ERROR_UNSUPPORTED,
        f"{call}: on CPUs this needs a group of the backend collops, got {what}; make it with "
        'dist.new_group(ranks, backend="collops")',
    )
