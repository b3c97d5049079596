"""First contact of a group's ranks, which have met at a store of torch's."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from collops.errors import ErrorCode, raise_status
from collops.launch.place import (
    connect,
    named,
    no_place,
    own_address,
    place_of,
    start_of,
    this_process,
    until,
)
from collops.torch_gloo import Marks, is_set

if TYPE_CHECKING:
    from collops.collectives.communicator import Communicator

_ADVICE = (
    "set MASTER_ADDR to an address of rank 0's host, the same in all ranks, or use a tcp:// address"
)
_WRITING_S = 2.0  # for a process that has taken a number to write what it stands for


def meet(
    store: Any, rank: int, size: int, name: str, timeout_s: float, backend: str | None = None
) -> Communicator:
    """Makes the communicator of a group; every rank of it calls this with the group's store.

    A group is a job of its own, so that its ranks need no launcher. Across hosts they meet at a
    port that rank 0 has opened, and has written into the store. `backend` None: what CPU tensors
    take, on one host or on several.
    """
    if not 0 <= rank < size:
        fault = f"group {name!r}: rank must be from 0 to {size - 1}, got {rank}"
        raise_status(ErrorCode.ERROR_INVALID_PARAM, fault)
    meeting = _Meeting(store, rank, size, timeout_s)
    try:
        place = meeting.decision()
    except dist.DistError as error:
        fault = f"the store at which its ranks meet is gone: {error}"
        place = no_place(ErrorCode.ERROR_PEER_LOST, fault)
    made = connect(place, rank, size, name, timeout_s, backend)
    del meeting  # now the communicator has its port
    made._core.compares_shapes = False
    return made


class _Meeting:
    """One meeting of a group's ranks at a store, which may outlive it and see them meet again.

    Each rank writes who it is, and waits for a decision: where they connect, or why they do not.
    Rank 0 decides once all have come; before that any rank may, such as one that has waited for too
    long, or that finds its place taken. The first decision holds for all.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout_s: float) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._timeout_s = timeout_s
        self._port: Any = None  # of rank 0, which has to stay open until all have connected
        self._keys = ""

    def decision(self) -> dict[str, Any]:
        """Where the ranks meet, or the fault that ends their meeting."""
        own = this_process(address_of_this_host(self._store))
        turns = f"collops/turn/{self._rank}"
        turn = self._store.add(turns, 1)
        self._keys = f"collops/{turn - 1}"
        if turn > 1 and (other := self._holder_of_this_rank(own)):
            self._store.add(turns, -1)
            fault = (
                f"rank {self._rank} is claimed twice, by pid {other['pid']} on {other['node']} and "
                f"by pid {own['pid']} on {own['node']}"
            )
            place = no_place(ErrorCode.ERROR_RANK_MISMATCH, fault)
            self._decide(place)
            return place
        self._keys = f"collops/{turn}"
        self._store.set(self._key_of(self._rank), json.dumps(own))
        try:
            self._compare_sizes(own["pid"])
            place = self._wait()
            if place["fault"]:
                self._let_others_read()
            return place
        except BaseException as error:  # such as Ctrl-C
            with contextlib.suppress(Exception):
                fault = f"rank {self._rank} did not wait for the others: {type(error).__name__}"
                self._decide(no_place(ErrorCode.ERROR_ABORTED, fault))
            raise

    def _key_of(self, rank: int) -> str:
        return f"{self._keys}/rank/{rank}"

    def _holder_of_this_rank(self, own: dict[str, Any]) -> dict[str, Any] | None:
        """Another process, or thread, that is this rank in the meeting before; None: it is over.

        A process that has met there and lives on may be done with that group only if it is this
        one. Of one on another host it is not known whether it lives.
        """
        place = self._decided()
        if place is not None and place["fault"]:
            return None
        key = self._key_of(self._rank)
        if not until(lambda: bool(self._store.check([key])), _WRITING_S):
            return None
        other: dict[str, Any] = json.loads(self._store.get(key))
        here = other["host"] == own["host"]
        if place is not None and (not here or other == own):
            return None
        return None if here and start_of(other["pid"]) != other["start"] else other

    def _compare_sizes(self, pid: int) -> None:
        """Ends the meeting if the first rank that wrote its number of ranks has another one."""
        own = {"size": self._size, "of": f"on rank {self._rank} (pid {pid})"}
        first = json.loads(self._store.compare_set(f"{self._keys}/size", "", json.dumps(own)))
        if first["size"] != self._size:
            said = " and ".join(f"{one['size']} {one['of']}" for one in (first, own))
            self._decide(no_place(ErrorCode.ERROR_RANK_MISMATCH, f"world_size is {said}"))

    def _wait(self) -> dict[str, Any]:
        ranks = [self._key_of(rank) for rank in range(self._size)]
        marks = Marks(self._store, self._size) if is_set() else None

        def may_end() -> bool:
            if marks is not None and (fault := marks.fault()):
                self._decide(no_place(ErrorCode.ERROR_RANK_MISMATCH, fault))
            if self._rank == 0 and self._store.check(ranks):
                self._decide(self._connecting(ranks))
            return self._decided() is not None

        if not until(may_end, self._timeout_s):
            missing = [rank for rank in range(self._size) if not self._has_come(rank)]
            fault = (
                f"{named(missing or [0])} of {self._size} did not connect within "
                f"{self._timeout_s:g} s: first contact at the group's store"
            )
            self._decide(no_place(ErrorCode.ERROR_TIMEOUT, fault))
        place = self._decided()
        if place is None:  # a rank died while it wrote its decision
            place = no_place(ErrorCode.ERROR_TIMEOUT, "the decision of its ranks is not written")
        return place

    def _let_others_read(self) -> None:
        """Rank 0's process often has the store, which ends with it: the others read first."""
        come = [self._has_come(rank) for rank in range(self._size)].count(True)
        readers = f"{self._keys}/readers"
        self._store.add(readers, 1)
        if self._rank == 0:
            until(lambda: bool(self._store.add(readers, 0) >= come), _WRITING_S)

    def _has_come(self, rank: int) -> bool:
        return bool(self._store.check([self._key_of(rank)]))

    def _connecting(self, ranks: list[str]) -> dict[str, Any]:
        place, self._port = place_of([json.loads(self._store.get(key)) for key in ranks], _ADVICE)
        return place

    def _decide(self, place: dict[str, Any]) -> None:
        """Makes a decision, unless another rank has been faster, and waits until it is written."""
        if self._store.add(f"{self._keys}/decisions", 1) == 1:
            self._store.set(f"{self._keys}/place", json.dumps(place))
        until(lambda: self._decided() is not None, _WRITING_S)

    def _decided(self) -> dict[str, Any] | None:
        key = f"{self._keys}/place"
        return json.loads(self._store.get(key)) if self._store.check([key]) else None


def address_of_this_host(store: Any) -> str:
    """An address of this host that others may reach: the one it has towards rank 0's; or ""."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    known = (getattr(store, "host", ""), os.environ.get("MASTER_ADDR", ""))
    return next((own for own in map(own_address, known) if own), "")
