"""Groups that get other ranks by torch.distributed._reconfigure(), which torch has from 2.14 on.

As with gloo, the ranks of each turn meet at the group's store, so that it has to outlive them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn

import torch.distributed as dist

from collops.errors import ErrorCode, raise_status
from collops.launch.place import this_process
from collops.torch.meeting import meet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.collectives.communicator import Communicator

_FIRST = "collops"
_HANDLE = re.compile(rf"{_FIRST}:(-?\d+):")  # and the rank with which its process has begun


class NoRanks:
    """Stands for the communicator of a group whose ranks are still to be named.

    Attributes:
        rank, size: what the program has passed to init_process_group.
        timeout_s: how long the ranks will wait for each other.
    """

    def __init__(self, rank: int, size: int, timeout_s: float) -> None:
        self.rank, self.size, self.timeout_s = rank, size, timeout_s
        self._plain = self

    def starting(self) -> NoRanks:
        """What starts calls."""
        return self

    def abort(self, reason: str = "") -> None:
        """Nothing: there are no calls."""

    def close(self) -> None:
        """Nothing: there is no rank that waits."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise_status(
            ErrorCode.ERROR_INVALID_PARAM,
            f"{name}: the group has no ranks yet: call torch.distributed._reconfigure() with the "
            "handles of all of them",
        )


class Turns:
    """The turns of a group that gets other ranks, and this process's handle in each.

    Args:
        store: where the ranks of all turns meet.
        rank: in which order ranks come whose handles are a set.
    """

    def __init__(self, store: Any, rank: int) -> None:
        self._store = store
        self._rank = rank
        self._uuids: list[int] = []

    @property
    def handle(self) -> str:
        """What the program gives to the ranks of the next turn."""
        last = self._uuids[-1] if self._uuids else -1
        return ":".join((_FIRST, str(self._rank), str(last), this_process("")["process"]))

    def place(self, opts: Any) -> tuple[int, int, Any]:
        """This process's rank in a turn, the number of ranks, and their store."""
        own, handles = self.handle, _in_order(opts.handles)
        if opts.uuid in self._uuids:
            _refuse(f"the uuid {opts.uuid} was already used: each turn needs one of its own")
        if len(set(handles)) != len(handles):
            _refuse("a handle is there twice")
        if own not in handles:
            _refuse(f"the handles lack this process's, {own}")
        self._uuids.append(opts.uuid)
        store = dist.PrefixStore(f"collops/turn of uuid {opts.uuid}", self._store)
        return handles.index(own), len(handles), store


def meet_in_turn(place: tuple[int, int, Any], name: str, timeout_s: float) -> Communicator:
    """The communicator of the ranks of a turn."""
    rank, size, store = place
    return meet(store, rank, size, name, timeout_s)


def _in_order(handles: Any) -> Sequence[str]:
    """The handles in the order of ranks; those of a set by the ranks that they began with."""
    ranks: dict[str, int] = {}
    for handle in handles:
        if (found := _HANDLE.match(handle)) is None:
            _refuse(f"a handle is {handle!r}, which is none of a collops group")
        ranks[handle] = int(found[1])
    if isinstance(handles, (set, frozenset)):
        return sorted(handles, key=lambda handle: (ranks[handle], handle))
    return list(handles)


def _refuse(fault: str) -> NoReturn:
    raise_status(ErrorCode.ERROR_INVALID_PARAM, f"reconfigure: {fault}")
