"""Who a group is: its ranks, names and what it supports, under the names that torch asks for.

The class ProcessGroup of torch 2.13 answers these through a backend in C++, which there is none of.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from collops.errors import ErrorCode, raise_status
from collops.torch.devices import kinds
from collops.torch.private import c10d

if TYPE_CHECKING:
    from collops.collectives.communicator import Communicator
    from collops.torch.works import CallLog

_CPU = torch.device("cpu")
_BACKEND = "collops"


class Identity:
    """The names and numbers of a group."""

    _comm: Communicator
    _rank: int
    _size: int
    log: CallLog

    def __init__(self, store: Any, name: str) -> None:
        self._store = store
        self._name = name
        self._desc = "undefined"
        self.others: Any = None

    def leave_other_devices_to(self, others: Any) -> None:
        """Takes torch's group of the same ranks for tensors on other devices than CPUs."""
        self.others, self.bound_device_id = others, others.bound_device_id
        kinds.let_others_be_used()

    def rank(self) -> int:
        """This process's number in the group."""
        return self._rank

    def size(self) -> int:
        """The number of ranks."""
        return self._size

    getRank, getSize = rank, size

    def name(self) -> str:
        """The backend's name; torch's C++ looks for a backend of gloo's own where it is gloo."""
        return _BACKEND

    getBackendName = _get_backend_name = name

    def get_group_store(self) -> Any:
        """The store of this group."""
        return self._store

    @property
    def group_name(self) -> str:
        """The name by which torch finds the group."""
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    setGroupName = _set_group_name

    def getGroupName(self) -> str:
        """As group_name."""
        return self._name

    @property
    def group_desc(self) -> str:
        """What the group is for."""
        return self._desc

    def _set_group_desc(self, desc: str) -> None:
        self._desc = desc

    setGroupDesc = _set_group_desc

    def getGroupDesc(self) -> str:
        """As group_desc."""
        return self._desc

    @property
    def _device_types(self) -> list[torch.device]:
        return [_CPU, *(self.others._device_types if self.others is not None else ())]

    def _get_backend(self, device: torch.device) -> Any:
        if self.others is not None and torch.device(device).type != "cpu":
            return self.others._get_backend(device)
        return self

    bound_device_id: torch.device | None = None  # torch sets it on the group that split_group makes

    @property
    def options(self) -> Any:
        """What torch's pipelines read of the group from which they split others: its time-out."""
        limit = timedelta(seconds=self._comm.timeout_s)
        return c10d.Backend.Options(_BACKEND, limit)

    @property
    def supports_splitting(self) -> bool:
        """True: torch.distributed.split_group() calls the group's split_group()."""
        return True

    def eager_connect_single_device(self, device: torch.device) -> None:
        """Nothing: the first call with tensors of a device connects the ranks' devices."""

    @property
    def supports_coalescing(self) -> bool:
        """False: torch's C++ would ask a backend of its own; the calls themselves are here."""
        return False

    supports_time_estimate = supports_coalescing

    # What torch asks from 2.14 on; the methods that need it raise errors.
    supports_window = supports_coalescing
    supports_abort_hooks = supports_completion_hooks = supports_coalescing

    def new_window(self, tensor: torch.Tensor | None = None) -> NoReturn:
        """Not supported, as by gloo: allocate_tensor() gives memory that others read in place."""
        raise_status(
            ErrorCode.ERROR_UNSUPPORTED,
            "new_window: a collops group has no windows of torch; memory of "
            "group.allocate_tensor() is read in place by the other ranks",
        )

    def register_abort_hook(self, hook_id: int, hook: Any = None) -> NoReturn:
        """Not supported, as by gloo."""
        raise_status(
            ErrorCode.ERROR_UNSUPPORTED,
            "register_abort_hook: a collops group calls no hooks when it ends; the call that "
            "fails raises the reason on every rank",
        )

    unregister_abort_hook = register_abort_hook

    def _has_hooks(self) -> bool:
        return False

    def _set_sequence_number_for_group(self) -> None:
        """The core counts each group's calls from its first one."""

    def _get_sequence_number_for_group(self) -> int:
        return self.log.count
