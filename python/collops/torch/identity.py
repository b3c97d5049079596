"""Who a group is: its ranks, names and what it supports, under the names that torch asks for.

The class ProcessGroup of torch 2.13 answers these through a backend in C++, which there is none of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collops.torch.call_log import CallLog

_CPU = torch.device("cpu")
_BACKEND = "collops"


class Identity:
    """The names and numbers of a group."""

    _rank: int
    _size: int
    log: CallLog

    def __init__(self, store: Any, name: str) -> None:
        self._store = store
        self._name = name
        self._desc = "undefined"

    def rank(self) -> int:
        """This process's number in the group."""
        return self._rank

    def size(self) -> int:
        """The number of ranks."""
        return self._size

    getRank, getSize = rank, size

    def name(self) -> str:
        """The backend's name."""
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
        return [_CPU]

    def _get_backend(self, device: torch.device) -> Any:
        return self

    @property
    def supports_coalescing(self) -> bool:
        """False: torch's C++ would ask a backend of its own; the calls themselves are here."""
        return False

    supports_splitting = supports_time_estimate = supports_coalescing

    @property
    def bound_device_id(self) -> None:
        """CPUs have no number."""

    def _has_hooks(self) -> bool:
        return False

    def _set_sequence_number_for_group(self) -> None:
        """The core counts each group's calls from its first one."""

    def _get_sequence_number_for_group(self) -> int:
        return self.log.count
