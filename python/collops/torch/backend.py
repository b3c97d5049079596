"""The backend "collops" of torch.distributed: how it makes a group."""

from __future__ import annotations

from typing import Any

from collops.torch.group import Group
from collops.torch.meeting import meet


def create(options: Any, _: Any) -> Group:
    """Makes the group that torch.distributed asks for; every rank of it calls this."""
    store, name = options.store, options.group_id
    place = options.group_rank, options.group_size
    communicator = meet(store, *place, name, options.timeout.total_seconds())
    return Group(communicator, store, name)
