"""Hooks before and after the calls of a group, which torch has from 2.14 on.

torch's own are called by its class of groups, in whose place a group of collops is. A group whose
hooks nobody registers has no code of them in its calls.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from collops.errors import ErrorCode, raise_status
from collops.torch.graph_breaks import break_graphs
from collops.torch.private import c10d

if TYPE_CHECKING:
    from collops.torch.calls import Calls

    Hook = Callable[[Any], object]

_NAN_CHECK = "TORCH_DIST_NAN_CHECK"  # of torch 2.14, whose own check a group of ours does not call

# The calls that have hooks: their names for these, and the core's; messages have none of the core.
_CALLS = {
    "allreduce": ("ALLREDUCE", "AllReduce"),
    "allreduce_coalesced": ("ALLREDUCE_COALESCED", "AllReduce"),
    "broadcast": ("BROADCAST", "Broadcast"),
    "reduce": ("REDUCE", "Reduce"),
    "allgather": ("ALLGATHER", "AllGatherV"),
    "allgather_coalesced": ("ALLGATHER_COALESCED", "AllGatherV"),
    "all_gather_single": ("ALLGATHER_BASE", "AllGather"),
    "all_gather_single_coalesced": ("ALLGATHER_INTO_TENSOR_COALESCED", "AllGather"),
    "reduce_scatter": ("REDUCE_SCATTER", "ReduceScatterV"),
    "reduce_scatter_single": ("REDUCE_SCATTER_BASE", "ReduceScatter"),
    "reduce_scatter_single_coalesced": ("REDUCE_SCATTER_TENSOR_COALESCED", "ReduceScatter"),
    "gather": ("GATHER", "AllToAllV"),
    "gather_single": ("GATHER", "AllToAllV"),
    "scatter": ("SCATTER", "AllToAllV"),
    "alltoall": ("ALLTOALL", "AllToAllV"),
    "all_to_all_single": ("ALLTOALL_BASE", "AllToAllV"),
    "barrier": ("BARRIER", "Barrier"),
    "send": ("SEND", ""),
    "recv": ("RECV", ""),
    "recv_anysource": ("RECV", ""),
}


@break_graphs
class Hooks:
    """The hooks of one group, by the numbers of who registered them."""

    def __init__(self) -> None:
        self._before: dict[Any, Hook] = {}
        self._after: dict[Any, Hook] = {}
        self._numbers = itertools.count()
        self._thread = threading.local()  # whether it is inside of a call, which may make others

    def add(
        self, group: Any, hook_id: Any, *, before: Hook | None = None, after: Hook | None = None
    ) -> None:
        """Registers a hook of the group, in the place of the one with this number."""
        if not hasattr(c10d, "PreHookArgs"):
            raise_status(
                ErrorCode.ERROR_UNSUPPORTED,
                f"a process group has hooks from torch 2.14 on, this is torch {torch.__version__}",
            )
        if not self._before and not self._after:
            self._watch(group)
        if before is not None:
            self._before[hook_id] = before
        if after is not None:
            self._after[hook_id] = after

    def check_if_asked(self, group: Any) -> None:
        """Looks for NaN before each call of the group, if torch's variable asks for it."""
        if os.environ.get(_NAN_CHECK) == "1" and hasattr(c10d, "NanCheckHook"):
            self.add(group, _NAN_CHECK, before=functools.partial(_check_for_nan, group))

    def add_those_of(self, group: Any, old: Hooks) -> None:
        """Registers another group's hooks for this one, which has a check for NaN of its own."""
        for hook_id, hook in old._before.items():
            if hook_id != _NAN_CHECK:
                self.add(group, hook_id, before=hook)
        for hook_id, hook in old._after.items():
            self.add(group, hook_id, after=hook)

    def remove_before(self, hook_id: Any) -> None:
        """Forgets a hook, if there is such a one."""
        self._before.pop(hook_id, None)

    def remove_after(self, hook_id: Any) -> None:
        """Forgets a hook, if there is such a one."""
        self._after.pop(hook_id, None)

    def _watch(self, group: Any) -> None:
        """Puts this object in front of the group's calls, under all of their names."""
        cls = type(group)
        for name in _CALLS:
            method = getattr(cls, name)
            for alias in [own for own in dir(cls) if getattr(cls, own) is method]:
                setattr(group, alias, functools.partial(self._call, group, name))

    def _call(self, group: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        call = getattr(type(group), name)
        if getattr(self._thread, "inside", False):
            return call(group, *args, **kwargs)
        self._thread.inside = True
        try:
            forms = _forms(type(group), name)
            if forms is not None:
                args, kwargs = forms.options_last(name, args, kwargs), {}
            before = self._arguments(name, forms, args, kwargs)
            try:
                _run(self._before, before)
            except Exception as error:
                _refuse(group, name, args, error)
                raise
            after = c10d.PostHookArgs()
            after.name, after.op_id, after.async_op = before.name, before.op_id, before.async_op
            # Not after.work, which is one of C++ once Python's has gone.
            work = after.work = call(group, *args, **kwargs)
            _run(self._after, after)
            return work
        finally:
            self._thread.inside = False

    def _arguments(self, name: str, forms: Any, args: Any, kwargs: Any) -> Any:
        """What a hook gets to know before a call."""
        said = c10d.PreHookArgs()
        said.name = _name(_CALLS[name][0])
        said.op_id = next(self._numbers)
        if forms is not None:
            said.input_tensors, said.output_tensors = forms.tensors(args)
            said.root, said.async_op = getattr(args[-1], "rootRank", -1), args[-1].asyncOp
            return said
        passed: list[Any] = [*args, *kwargs.values()]  # of a message
        tensors, *others = passed
        said.async_op = True
        if name == "send":
            said.input_tensors = list(tensors)
        else:
            said.output_tensors = list(tensors)
        if name != "recv_anysource":
            said.root = kwargs.get("dstRank", kwargs.get("srcRank", others[0]))
        return said


def _refuse(group: Any, name: str, args: Any, error: Exception) -> None:
    """Sends the error of a hook to the ranks that wait in the call, as those of the call."""
    operation = _CALLS[name][1]
    calls: Calls = group._device_calls(args) or group
    for _ in range(len(args[0]) if name.endswith("_coalesced") else bool(operation)):
        with calls.lock:
            calls._comm.refuse(operation, error)


def _name(kind: str) -> Any:
    """The name of a call for hooks; torch 2.14 has one name for all variants of a call."""
    names = c10d.HookOpName.__members__
    return names[max((own for own in names if kind.startswith(own)), key=len)]


def _forms(cls: type, name: str) -> Any:
    """The forms of a call's arguments, which a class may have from a base; None: of a message."""
    found = (getattr(vars(base).get(name), "forms", None) for base in cls.__mro__)
    return next((forms for forms in found if forms is not None), None)


def _run(hooks: dict[Any, Hook], said: Any) -> None:
    for hook in list(hooks.values()):
        hook(said)


def _check_for_nan(group: Any, said: Any) -> None:
    """A hook before each call: raises an error if what this rank sends has a NaN in it."""
    rank = group.rank()  # a group may get other ranks
    if said.name == c10d.HookOpName.BROADCAST and said.root != rank:
        return
    for x in said.input_tensors:
        if (x.is_floating_point() or x.is_complex()) and bool(torch.isnan(x).any()):
            raise RuntimeError(f"{said.name.name}: NaN found in input tensor, on rank {rank}")
