"""The kinds of devices with streams, and what calls on their tensors are made of."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import NamedTuple

import torch

from collops.core import core


class Kind(NamedTuple):
    """Devices of one type of torch's.

    Attributes:
        name: torch's name of the type, and the core's of the memory.
        averages: whether the backends for it have avg; else a sum is divided on the stream.
        in_place: whether their calls take a rank's own part of the memory that they write.
    """

    name: str
    averages: bool
    in_place: bool

    @property
    def module(self) -> ModuleType:
        """torch.npu, which torch_npu adds, or torch.cuda: streams, events and current devices."""
        module: ModuleType = torch.get_device_module(self.name)
        return module

    @property
    def backend(self) -> str:
        """The first of the core's that moves such memory; COLLOPS_BACKEND may replace it."""
        return next(str(name) for name, memory, _ in core().backend_kinds() if memory == self.name)


KINDS = {
    # HCCL has no average, reduces no uint8, and documents no call that takes overlapping memory,
    # but for all_reduce.
    "npu": Kind("npu", averages=False, in_place=False),
    "cuda": Kind("cuda", averages=True, in_place=True),
}


def kind_of(x: torch.Tensor) -> Kind | None:
    """The kind of a tensor's device; None: it has no streams."""
    return None if x.is_cpu else KINDS.get(x.device.type)


_others = False


def let_others_be_used() -> None:
    """Notes that this process has a group with torch's backends beside that of collops."""
    global _others
    _others = True


def may_be_used() -> bool:
    """Whether this process may have tensors on such devices; nearly free where it has none."""
    return _others or "torch_npu" in sys.modules or torch.cuda.is_initialized()


def first_tensor(args: object) -> torch.Tensor | None:
    """The first tensor of arguments and of lists in them."""
    if not isinstance(args, (list, tuple)):
        return None
    for value in args:
        if isinstance(value, torch.Tensor):
            return value
        if (found := first_tensor(value)) is not None:
            return found
    return None
