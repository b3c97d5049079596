"""Tensors of torch.distributed as memory that the core reads and writes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist

from collops.errors import ErrorCode, raise_status
from collops.torch.devices.kinds import KINDS, kind_of
from collops.torch.private import OpOverload, OpOverloadPacket, coalescing_manager

if TYPE_CHECKING:
    Empty = Callable[[int, torch.dtype], torch.Tensor]

_PLAIN = frozenset(
    {
        *(torch.float32, torch.bfloat16, torch.float16, torch.float64),
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    }
)
# The functions of torch whose frames have what the program passed, and their variables with it.
# Around each call of torch.distributed, except for isend and irecv, is one that logs exceptions.
_ALL = ("args", "kwargs")
_OPERATORS = {
    id(OpOverload.__call__.__code__): _ALL,
    id(OpOverload.redispatch.__code__): _ALL,
    id(OpOverloadPacket.__call__.__code__): _ALL,
}
_PASSED = {
    id(dist.broadcast.__code__): _ALL,
    id(dist.isend.__code__): ("relevant_args",),
    id(dist.irecv.__code__): ("relevant_args",),
    **_OPERATORS,
}
_COALESCED = inspect.unwrap(coalescing_manager).__code__
_MOST_FRAMES = 16  # from here to one of these
_FRAMES_TO_OPERATOR = 5
_PAIRS = "_collops_pairs"


class Target(NamedTuple):
    """Memory that the core writes.

    Attributes:
        memory: contiguous, of the tensor's type; its own where that is possible.
        finish: brings the values into the tensor; None: they are there.
    """

    memory: torch.Tensor
    finish: Callable[[], object] | None = None


def is_plain(x: torch.Tensor) -> bool:
    """Whether the core takes the tensor as it is."""
    return (
        x.dtype in _PLAIN
        and (x.is_cpu or x.device.type in KINDS)
        and x.layout is torch.strided
        and x.is_contiguous()
        and not x.requires_grad
        and not x.is_neg()
    )


def source(call: str, x: torch.Tensor) -> torch.Tensor:
    """The values of a tensor in contiguous memory, copied only if they must be."""
    if is_plain(x):
        return x
    x = _dense(call, x)
    return x if x.is_contiguous() else x.contiguous()


def target(
    call: str, out: torch.Tensor, *, keeps_values: bool = False, is_written: bool = True
) -> Target:
    """Memory for the values of a tensor.

    `keeps_values`: it begins with those of the tensor; not `is_written`: the tensor keeps them.
    """
    if is_plain(out):
        return Target(out)
    if not is_written:
        return Target(source(call, out))
    if out.is_conj() or out.is_neg():
        _check_not_expanded(call, [out])
        return _written_back([out], target(call, plain := _resolved(out)), [plain])
    memory = _dense(call, out)
    if memory.is_contiguous():
        return Target(memory)
    _check_not_expanded(call, [memory])
    packed = (
        memory.contiguous()
        if keeps_values
        else torch.empty_like(memory, memory_format=torch.contiguous_format)
    )
    return Target(packed, lambda: memory.copy_(packed))


def as_passed(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """The tensors, or the complex ones that the program has passed.

    Most calls of torch.distributed hand on complex numbers as pairs of real ones. Ranks compare the
    types that their programs have passed, so that pairs which the program itself makes stay real.
    """
    if not tensors or not all(map(_are_pairs, tensors)) or not _program_passed_complex(tensors):
        return tensors
    passed = [torch.view_as_complex(x) for x in tensors]
    for x, pairs in zip(passed, tensors, strict=True):
        setattr(x, _PAIRS, pairs)
    return passed


def as_got(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that the group got where as_passed() has found others: a Work returns these."""
    return [getattr(x, _PAIRS, x) if x.is_complex() else x for x in tensors]


def may_be_pairs(x: torch.Tensor) -> bool:
    """Whether as_passed() has to look at a tensor; nearly free."""
    may_be: bool = x.dim() > 1 or x.numel() == 2
    return may_be


def _are_pairs(x: torch.Tensor) -> bool:
    return bool(x.dim() > 0 and x.shape[-1] == 2 and x.is_floating_point())


def _program_passed_complex(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether all tensors of this thread's call of torch.distributed are complex."""
    x = tensors[0]
    if x._is_view() and not x._base.is_complex():
        return False
    # Of what an inference tensor is a view is not known. Of others it is, except for those that
    # torch's operators make.
    is_hidden = x._is_view() or x.is_inference()
    passing = _PASSED if is_hidden else _OPERATORS
    frame = sys._getframe(1)
    for _ in range(_MOST_FRAMES if is_hidden else _FRAMES_TO_OPERATOR):
        names = passing.get(id(frame.f_code))
        if names is not None:
            passed = _tensors([frame.f_locals.get(name) for name in names])
            return bool(passed) and all(x.is_complex() for x in passed)
        if frame.f_code is _COALESCED:  # after the calls: what is left of them are the views
            return all(x._is_view() and x._base.is_complex() for x in tensors)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False


def _tensors(values: Any) -> list[torch.Tensor]:
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, (list, tuple)):
        return [x for value in values for x in _tensors(value)]
    return [values] if isinstance(values, torch.Tensor) else []


def flat(x: torch.Tensor) -> torch.Tensor:
    """The elements of a contiguous tensor in one dimension."""
    return x if x.dim() == 1 else x.view(-1)


def joined(call: str, outs: Sequence[torch.Tensor], empty: Empty) -> Target:
    """One flat memory for several tensors, one after the other; their own if they lie so.

    `empty` makes other memory of a number of elements.
    """
    if any(out.is_conj() or out.is_neg() for out in outs):
        _check_not_expanded(call, outs)
        plain = [_resolved(out) for out in outs]
        return _written_back(outs, joined(call, plain, empty), plain)
    views = _views(call, outs)
    whole = _in_order(views)
    if whole is not None:
        return Target(whole)
    _check_not_expanded(call, views)
    packed = empty(sum(view.numel() for view in views), views[0].dtype)

    def unpack() -> None:
        begin = 0
        for view in views:
            view.copy_(packed[begin : begin + view.numel()].view(view.shape))
            begin += view.numel()

    return Target(packed, unpack)


def joined_source(
    call: str, parts: Sequence[torch.Tensor], empty: Empty, out: torch.Tensor
) -> torch.Tensor:
    """The elements of several tensors in one flat memory, apart from `out`.

    They are copied only if the tensors do not lie so; `empty` makes the memory.
    """
    views = _views(call, parts)
    whole = _in_order(views)
    if whole is None or overlap(whole, out):
        whole = empty(sum(view.numel() for view in views), views[0].dtype)
        torch.cat([view.reshape(-1) for view in views], out=whole)
    return whole


def _resolved(x: torch.Tensor) -> torch.Tensor:
    """The values of a tensor, not as a view that torch changes the signs of when it is read."""
    return x.detach().resolve_conj().resolve_neg()


def _written_back(
    outs: Sequence[torch.Tensor], own: Target, values: Sequence[torch.Tensor]
) -> Target:
    """Memory whose values are copied to other tensors, after what it does to be complete."""

    def finish() -> None:
        if own.finish is not None:
            own.finish()
        for out, value in zip(outs, values, strict=True):
            if value is not out:
                out.detach().copy_(value)

    return Target(own.memory, finish)


def _check_not_expanded(call: str, outs: Sequence[torch.Tensor]) -> None:
    """Refuses outputs in which elements are one in memory: torch cannot copy a result into them."""
    for number, out in enumerate(outs):
        for dim, (elements, stride) in enumerate(zip(out.shape, out.stride(), strict=True)):
            if stride == 0 and elements > 1 and out.numel() > 0:
                which = "the output" if len(outs) == 1 else f"output {number}"
                raise_status(
                    ErrorCode.ERROR_INVALID_TENSOR_ADDR,
                    f"{call}: the {elements} elements in dim {dim} of {which} are one in memory, "
                    "as expand() makes them: pass .contiguous(), which has memory for each",
                )


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two contiguous tensors share memory."""
    begin, other = a.data_ptr(), b.data_ptr()
    return bool(begin < other + b.nbytes and other < begin + a.nbytes)


def _dense(call: str, x: torch.Tensor) -> torch.Tensor:
    """The tensor with its values in its memory, and without its gradient."""
    if kind_of(x) is None and not x.is_cpu:
        raise_status(
            ErrorCode.ERROR_UNSUPPORTED,
            f"{call}: this group moves tensors on CPUs, GPUs and NPUs, got one on {x.device}",
        )
    if x.layout is not torch.strided:
        raise_status(ErrorCode.ERROR_UNSUPPORTED, f"{call}: tensors must be dense, got {x.layout}")
    if x.requires_grad:
        x = x.detach()
    return x.resolve_conj().resolve_neg()


def _views(call: str, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    views = [_dense(call, x) for x in tensors]
    for number, view in enumerate(views):
        if view.device != views[0].device:
            raise_status(
                ErrorCode.ERROR_INVALID_TENSOR_ADDR,
                f"{call}: tensor {number} of the list is on {view.device}, "
                f"tensor 0 on {views[0].device}",
            )
        if view.dtype != views[0].dtype:
            raise_status(
                ErrorCode.ERROR_INVALID_TENSOR_INI_MATCH,
                f"{call}: tensor {number} of the list is {tensors[number].dtype}, "
                f"tensor 0 {tensors[0].dtype}",
            )
    return views


def _in_order(views: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """One flat tensor on the memory of several that lie one after the other in one storage."""
    full = [view for view in views if view.numel()]
    if not full:
        return views[0].reshape(-1)
    first = full[0]
    place = first.data_ptr()
    for view in full:
        if not view.is_contiguous() or view.data_ptr() != place:
            return None
        place += view.nbytes
    storage = first.untyped_storage()
    if place > storage.data_ptr() + storage.nbytes():
        return None
    elements = (place - first.data_ptr()) // first.itemsize
    whole = torch.empty(0, dtype=first.dtype, device=first.device)
    return whole.set_(storage, first.storage_offset(), (elements,), (1,))
