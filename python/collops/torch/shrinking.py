"""A process group of the ranks that are left of one, and its place in torch's tables of groups."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import torch.distributed as dist

from collops.errors import (
    AbortedError,
    ErrorCode,
    PeerLostError,
    RankTimeoutError,
    raise_status,
)
from collops.launch.place import address_for_others, this_process
from collops.torch.graph_breaks import break_graphs
from collops.torch.group import Group
from collops.torch.meeting import address_of_this_host
from collops.torch.private import functions

if TYPE_CHECKING:
    from collops.collectives.communicator import Communicator

_LOOPBACK = "127.0.0.1"
_CONNECT_S = 10.0  # to a store that listens already
_MOMENT_S = 1.0  # for calls on streams to end by themselves, as in Communicator.shrink
_LOST = (PeerLostError, RankTimeoutError, AbortedError)


@break_graphs
def shrink(
    group: Any = None, exclude: Sequence[int] | None = None, timeout_s: float | None = None
) -> Group:
    """Makes a process group of the ranks that are left after a loss, in their old order.

    ``new.rank() = the place of my old rank in new.communicator.old_ranks, which is ascending``

    Every rank that is left calls it, with the same `exclude`, as Communicator.shrink(). It needs
    nothing of the old group's store, which may have ended with rank 0's process. The old group is
    destroyed. If it was the default group, the new one is that from now on: ranks of the world are
    numbers in it, and all other groups are destroyed, too, as by torch.distributed.shrink_group;
    make them again with new_group(). Otherwise its ranks keep their numbers in the world.

    Args:
        group: a collops group; None: the default group.
        exclude: numbers in the group of ranks to leave out, although they may live; they learn it
            as an error of their next call. None: none.
        timeout_s: seconds to wait for each rank that lives; one that has not called it then is left
            out. None: the group's.

    Returns:
        The new group, after first contact. A single rank may be left.

    Raises:
        collops.Error: as Communicator.shrink(); the group is not of collops.
        UnsupportedError: torch's own group moves tensors of other devices for this one.

    Source of the semantics: torch.distributed.shrink_group; Communicator.shrink.

    Example:
        >>> import tempfile, torch, torch.distributed as dist
        >>> import collops.torch
        >>> from collops.testing import run_ranks
        >>> def go_on_without_rank_0(rank, path):
        ...     dist.init_process_group(
        ...         "collops", init_method=f"file://{path}", rank=rank, world_size=3
        ...     )
        ...     if rank == 0:
        ...         dist.destroy_process_group()
        ...         return None
        ...     x = torch.tensor([rank + 1.0])
        ...     try:
        ...         dist.all_reduce(x.clone())
        ...     except collops.PeerLostError:
        ...         collops.torch.shrink()
        ...     dist.all_reduce(x)
        ...     found = dist.get_rank(), dist.get_world_size(), x.item()
        ...     dist.destroy_process_group()
        ...     return found
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run_ranks(go_on_without_rank_0, 3, f"{folder}/store")
        [None, (0, 2, 5.0), (1, 2, 5.0)]
    """
    old = _group_to_shrink(group)
    if old.others is not None:
        raise_status(
            ErrorCode.ERROR_UNSUPPORTED,
            f"shrink: group {old.group_name!r} leaves tensors of other devices to torch's own "
            "group, which cannot be made smaller: destroy_process_group(), and make a new one",
        )
    communicator, store, name, left = _go_on(old, exclude, timeout_s)
    new = Group(communicator, store, name)
    new.hooks.add_those_of(new, old.hooks)
    new._set_group_desc(old.group_desc)
    new.bound_device_id = old.bound_device_id
    _replace(old, new, left)
    return new


def _group_to_shrink(group: Any) -> Group:
    found = dist.group.WORLD if group is None else group
    if isinstance(found, Group) and not found.communicator._is_closed:
        return found
    if isinstance(found, Group):
        fault = (
            f"group {found.group_name!r} has ended: pass the one that shrink() has returned, none "
            "for the default group, or make it again with new_group()"
        )
    elif found is None:
        fault = "there is no default group: call torch.distributed.init_process_group"
    elif found is dist.GroupMember.NON_GROUP_MEMBER:
        fault = "this rank is not in the group: only its ranks call it"
    else:
        fault = f"the group must be one of collops, got {type(found).__name__}"
    raise_status(ErrorCode.ERROR_INVALID_PARAM, f"shrink: {fault}")


def shrink_group(ranks_to_exclude: Sequence[int], group: Group, shrink_flags: int) -> Group:
    """torch.distributed.shrink_group() of a collops group. Calls under way end with both flags."""
    if len(ranks_to_exclude) == 0:
        raise_status(
            ErrorCode.ERROR_INVALID_PARAM,
            "shrink_group: ranks_to_exclude is empty: collops.torch.shrink() finds out who is left",
        )
    if shrink_flags not in (0, 1):
        raise_status(
            ErrorCode.ERROR_INVALID_PARAM,
            "shrink_group: shrink_flags must be SHRINK_DEFAULT or SHRINK_ABORT, got "
            f"{shrink_flags!r}",
        )
    return shrink(group, ranks_to_exclude)


def _go_on(
    old: Group, exclude: Sequence[int] | None, timeout_s: float | None
) -> tuple[Communicator, Any, str, list[int]]:
    """The communicator of those that are left, their store, name, and numbers in the old group.

    A rank that ends before all have the store is a loss of the new communicator. Some may learn of
    it here and others by a call of the new group, so that their old groups differ.
    """
    here = address_of_this_host(old.get_group_store())
    communicator, left = old.communicator, list(range(old.size()))
    for attempts_left in reversed(range(old.size() + 1)):
        communicator = communicator.shrink(exclude, timeout_s)
        left = [left[rank] for rank in communicator.old_ranks]
        exclude = None
        try:
            gone = sorted(set(range(old.size())) - set(left))
            name = f"{old.group_name} without {gone}"
            return communicator, *_new_store(communicator, here, name), left
        except _LOST:
            if not attempts_left:
                raise
    raise AssertionError


def _new_store(communicator: Communicator, here: str, name: str) -> tuple[Any, str]:
    """A store in the process of rank 0, and rank 0's name of the group, by which ranks meet there.

    new_group(), split_group() and the first call on GPUs need them.
    """
    limit = timedelta(seconds=communicator.timeout_s)
    ranks = _from_each(communicator, this_process(here))
    store: Any = None
    place: dict[str, Any] = {}
    if communicator.rank == 0:
        try:
            store, place = _open_store(ranks, limit)
            place["name"] = name
        except Exception as error:  # the others wait for its word
            place = {"fault": f"{type(error).__name__}: {error}"}
    place = _from_each(communicator, place)[0]
    if "fault" in place:
        communicator.close()
        raise_status(
            ErrorCode.ERROR_RT_FAIL, f"shrink: rank 0 cannot open a store: {place['fault']}"
        )
    if store is None:
        at = place["host"], place["port"]
        try:
            store = dist.TCPStore(*at, None, False, timedelta(seconds=_CONNECT_S), False)
        except dist.DistError as error:  # rank 0 has ended, for all that this one knows
            communicator.abort(f"rank {communicator.rank} cannot reach the store: {error}")
        else:
            store.set_timeout(limit)
    communicator.barrier()
    return store, place["name"]


def _from_each(communicator: Communicator, own: dict[str, Any]) -> list[dict[str, Any]]:
    """What each rank passes, in their order."""
    line = json.dumps(own).encode() + b"\n"
    lines = communicator.all_gatherv(np.frombuffer(line, np.uint8)).tobytes()
    return [json.loads(one) for one in lines.splitlines()]


def _open_store(ranks: list[dict[str, Any]], limit: timedelta) -> tuple[Any, dict[str, Any]]:
    """A store for the other ranks, and how they reach it: from other hosts if there are any."""
    host = address_for_others(ranks) or _LOOPBACK
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        port = listener.getsockname()[1]
        # The store closes the descriptor.
        store = dist.TCPStore(
            host, port, None, True, limit, False, master_listen_fd=listener.detach()
        )
    return store, {"host": host, "port": port}


def _replace(old: Group, new: Group, left: list[int]) -> None:
    """Puts a group in the place of one in torch's tables, if torch knows the old one."""
    world = functions._world
    ended = list(world.pg_map) if old is dist.group.WORLD else [old]
    limit = time.monotonic() + _MOMENT_S
    for group in ended:
        if isinstance(group, Group):
            group.end_device_calls_by(limit)
    if old not in world.pg_map:
        old.shutdown()
        return
    (backend, _), config = world.pg_map[old], world.pg_backend_config[old]
    tag = world.pg_to_tag[old]
    if old is dist.group.WORLD:
        ranks = list(range(len(left)))
        for other in ended:
            if not isinstance(other, Group):
                with contextlib.suppress(Exception):  # its shutdown() may wait for lost ranks
                    other.abort()
        dist.destroy_process_group()
        functions._update_default_pg(new)
    else:
        ranks = [dist.get_global_rank(old, rank) for rank in left]
        dist.destroy_process_group(old)
    name, is_tagged = new.group_name, tag.startswith("user:")
    world.pg_map[new] = (backend, new.get_group_store())
    world.pg_names[new] = name
    world.pg_backend_config[new] = config
    world.pg_group_ranks[new] = {rank: own for own, rank in enumerate(ranks)}
    world.pg_to_tag[new] = tag if is_tagged else f"ptd:{name}"
    for one in ("", world.pg_to_tag[new]):
        world.tags_to_pg.setdefault(one, []).append(new)
    functions._register_process_group(name, new)
