"""Calls of a group without torch.distributed's wrappers, for loops that a program writes itself.

A call goes straight to the communicator: no Work, no options, no form of arguments but one. It runs
in the calling thread, in the order of the group's other calls, and is not asynchronous, traced or
differentiable: the operators of collops.torch are, and come here where nothing of that is asked.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.distributed as dist

from collops.collectives.communicator import Communicator
from collops.errors import ErrorCode, raise_status
from collops.torch.devices.kinds import may_be_used
from collops.torch.graph_breaks import break_graphs
from collops.torch.group import Group

_get_ident = threading.get_ident


@break_graphs
def all_reduce_(x: torch.Tensor, op: Any = "sum", group: Any = None) -> torch.Tensor:
    """Reduces x over the ranks, in place.

    ``x = x_0 op x_1 op ... op x_{P-1}``, in rank order

    Args:
        x: [...] of one shape on every rank, contiguous.
        op: as in Communicator.all_reduce; a member of torch.distributed.ReduceOp or its name.
        group: a collops group or a communicator; None: the default group.

    Returns:
        `x`.

    Raises:
        collops.Error: as Communicator.all_reduce; the group is not of collops.

    Source of the semantics: torch.distributed.all_reduce.

    Example:
        >>> import torch, torch.distributed as dist
        >>> import collops.torch
        >>> dist.init_process_group("collops", store=dist.HashStore(), rank=0, world_size=1)
        >>> collops.torch.all_reduce_(torch.tensor([1.0, 2.0])).tolist()
        [1.0, 2.0]
        >>> dist.destroy_process_group()
    """
    call_directly(group, "all_reduce", x, x, op, x)
    return x


@break_graphs
def broadcast_(x: torch.Tensor, root: int = 0, group: Any = None) -> torch.Tensor:
    """Gives every rank the root's x, in place.

    ``x_r = x_root``, for every rank r

    Args:
        x: [...] of one shape on every rank, contiguous.
        root: its rank in the group.
        group: as in all_reduce_().

    Returns:
        `x`.

    Raises:
        collops.Error: as Communicator.broadcast; the group is not of collops.

    Source of the semantics: torch.distributed.broadcast, with its argument group_src.

    Example:
        >>> import torch, torch.distributed as dist
        >>> import collops.torch
        >>> dist.init_process_group("collops", store=dist.HashStore(), rank=0, world_size=1)
        >>> collops.torch.broadcast_(torch.tensor([1.0, 2.0])).tolist()
        [1.0, 2.0]
        >>> dist.destroy_process_group()
    """
    call_directly(group, "broadcast", x, x, root)
    return x


@break_graphs
def all_gather_into(out: torch.Tensor, x: torch.Tensor, group: Any = None) -> torch.Tensor:
    """Gathers every rank's x in out, in rank order.

    ``out = concatenate([x_0, x_1, ..., x_{P-1}])``

    Args:
        out: [P * rows, ...] contiguous.
        x: [rows, ...] of one shape on every rank, contiguous; it may be this rank's rows of `out`.
        group: as in all_reduce_().

    Returns:
        `out`.

    Raises:
        collops.Error: as Communicator.all_gather; the group is not of collops.

    Source of the semantics: torch.distributed.all_gather_into_tensor.

    Example:
        >>> import torch, torch.distributed as dist
        >>> import collops.torch
        >>> dist.init_process_group("collops", store=dist.HashStore(), rank=0, world_size=1)
        >>> collops.torch.all_gather_into(torch.empty(2), torch.tensor([1.0, 2.0])).tolist()
        [1.0, 2.0]
        >>> dist.destroy_process_group()
    """
    call_directly(group, "all_gather", x, x, out)
    return out


@break_graphs
def reduce_scatter_into(
    out: torch.Tensor, x: torch.Tensor, op: Any = "sum", group: Any = None
) -> torch.Tensor:
    """Reduces x over the ranks, and leaves each rank its part of the result in out.

    ``out_r = (x_0 op x_1 op ... op x_{P-1})[r * rows / P : (r + 1) * rows / P]``, in rank order

    Args:
        out: [rows / P, ...] contiguous; it may be this rank's part of `x`.
        x: [rows, ...] of one shape on every rank, contiguous.
        op: as in all_reduce_().
        group: as in all_reduce_().

    Returns:
        `out`.

    Raises:
        collops.Error: as Communicator.reduce_scatter; the group is not of collops.

    Source of the semantics: torch.distributed.reduce_scatter_tensor.

    Example:
        >>> import torch, torch.distributed as dist
        >>> import collops.torch
        >>> dist.init_process_group("collops", store=dist.HashStore(), rank=0, world_size=1)
        >>> collops.torch.reduce_scatter_into(torch.empty(2), torch.tensor([1.0, 2.0])).tolist()
        [1.0, 2.0]
        >>> dist.destroy_process_group()
    """
    call_directly(group, "reduce_scatter", x, x, op, out)
    return out


@break_graphs
def call_directly(group: Any, name: str, x: torch.Tensor, *args: Any) -> Any:
    """Makes the core's call of this name with its arguments, of which x is one; its result."""
    found = dist.group.WORLD if group is None else group
    if isinstance(found, Communicator):
        return getattr(found._plain, name)(*args)
    if not isinstance(found, Group):
        what = "None" if found is None else type(found).__name__
        raise_status(
            ErrorCode.ERROR_INVALID_PARAM,
            f"{name}: the group must be one of collops or a communicator, got {what}",
        )
    if may_be_used() and not x.is_cpu:
        found.log.add(f"collops.torch.{name}", (x,))
        return getattr(found.communicator_for(x.device)._plain, name)(*args)
    return _call_on_cpu(found, name, x, args)


def _call_on_cpu(group: Group, name: str, x: torch.Tensor, args: Any) -> Any:
    with group.lock:
        if group._thread != _get_ident():
            group._note_thread()
        group.log.add(f"collops.torch.{name}", (x,))
        if not (group._shared or group.futures.asked):
            try:
                return getattr(group._plain, name)(*args)
            except Exception as error:
                group.log.explain(error)
                raise
        started = getattr(group._starting, name)(*args)
    try:
        return started.wait(0.0)
    except Exception as error:
        group.log.explain(error)
        raise
