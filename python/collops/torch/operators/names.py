"""Groups by name, as a schema takes them, and their communicators for an operator's call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from collops.collectives.communicator import Communicator, communicator_named
from collops.errors import ErrorCode, raise_status
from collops.torch.calls import refuse
from collops.torch.graph_breaks import break_graphs
from collops.torch.group import Group
from collops.torch.private import resolve_process_group

if TYPE_CHECKING:
    from typing import TypeAlias

# Whatever names the ranks of an operator.
AnyGroup: TypeAlias = "Group | Communicator | DeviceMesh | dist.ProcessGroup | str | None"

_CPU = torch.device("cpu")
_OWN = "collops/"  # begins the name of a communicator, which torch does not know


def name_of(group: AnyGroup) -> str:
    """The name of a group; torch.compile traces this."""
    if isinstance(group, str):
        return group
    found: Any = group
    if group is None:
        found = dist.group.WORLD
        if found is None:
            raise_status(
                ErrorCode.ERROR_INVALID_PARAM,
                "there is no default group: call torch.distributed.init_process_group, or pass "
                "group=",
            )
    elif isinstance(group, Communicator):
        # An attribute: torch.compile cannot make a string of a number that changes.
        return group._name
    elif isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise_status(
                ErrorCode.ERROR_INVALID_PARAM,
                f"group: a mesh must have 1 dim, got one of {group.ndim}: pass mesh[name]",
            )
        found = group.get_group()
    elif not isinstance(group, dist.ProcessGroup):
        raise_status(
            ErrorCode.ERROR_INVALID_PARAM,
            "group must be a group of torch.distributed, a communicator, a mesh, a name or None, "
            f"got {type(group).__name__}",
        )
    name: str = found.group_name
    return name


@break_graphs
def communicator_of(name: str, device: torch.device = _CPU) -> Communicator:
    """The communicator of the group of a name, for tensors on a device."""
    if name.startswith(_OWN):
        found = communicator_named(name)
        if found is None:
            raise_status(
                ErrorCode.ERROR_INVALID_PARAM,
                f"there is no communicator named {name!r}: nothing in this process holds it",
            )
        return found
    group = _group_named(name)
    try:
        communicator: Communicator = group.communicator_for(device)
    except AttributeError:
        raise_status(
            ErrorCode.ERROR_UNSUPPORTED,
            f"group {name!r} runs on {dist.get_backend(group)}: make one with "
            'new_group(ranks, backend="collops")',
        )
    return communicator


def communicator_for_call(call: str, x: torch.Tensor, name: str) -> Communicator:
    """The communicator of a call that begins now, which last_calls() of the group then lists."""
    communicator = communicator_of(name, x.device)
    if not name.startswith(_OWN):
        _group_named(name).log.add(f"collops.torch.{call}", [x])
    return communicator


def _group_named(name: str) -> Any:
    try:
        return resolve_process_group(name)
    except (RuntimeError, ValueError):
        raise_status(
            ErrorCode.ERROR_INVALID_PARAM,
            f"there is no group named {name!r}: it was not made in this process, or is destroyed",
        )


def check_no_gradients(name: str, group: str | None, *tensors: torch.Tensor | None) -> None:
    """Refuses a call with `out` through which gradients would have to pass, as torch does.

    `group`: whose ranks wait in the call and are told; None: nobody waits.
    """
    given = [x for x in tensors if x is not None]
    if not torch.is_grad_enabled() or not any(x.requires_grad for x in given):
        return
    message = (
        f"{name}: gradients do not pass a call with out=: leave it out, pass .detach(), or "
        "call under torch.no_grad()"
    )
    if group is None:
        raise_status(ErrorCode.ERROR_UNSUPPORTED, message)
    refuse(communicator_of(group, given[0].device), name, ErrorCode.ERROR_UNSUPPORTED, message)
