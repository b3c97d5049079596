"""The backend "collops" of ray.util.collective, for CPU tensors of Ray's actors and tasks.

``import collops.ray`` registers it in this process; each actor of a group and the driver that
declares the group import it. Then ``init_collective_group(size, rank, "collops")`` makes a group,
and all calls of ray.util.collective run on it.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import ray
from ray.experimental import internal_kv
from ray.util.collective.backend_registry import _global_registry, register_collective_backend
from ray.util.collective.collective_group.base_collective_group import BaseGroup
from ray.util.collective.types import ReduceOp

from collops.errors import ErrorCode, status_error
from collops.launch.place import (
    connect,
    limit_of_variable,
    named,
    no_place,
    own_address,
    place_of,
    start_of,
    this_process,
    until,
)

__all__ = ["RayGroup", "register"]

_NAME = "COLLOPS"
_SPACE = b"collops"  # the namespace of the keys by which ranks meet
_ANSWER_S = 2.0  # for rank 0, which may have begun to wait later, to name the missing ranks
_ADVICE = "start Ray with --node-ip-address"
_LIMIT_S = 300.0  # as of the communicators that init() makes
_REDUCTIONS = {"SUM": "sum", "PRODUCT": "prod", "MIN": "min", "MAX": "max", "AVERAGE": "avg"}


def register() -> None:
    """Makes the backend known to ray.util.collective in this process; importing this calls it."""
    if not _global_registry.is_registered(_NAME):
        register_collective_backend(_NAME, RayGroup)


class RayGroup(BaseGroup):  # type: ignore[misc]
    """A group of Ray's actors; ray.util.collective makes it where the backend is "collops".

    Tensors are contiguous numpy arrays or torch tensors on CPUs, and a call changes them in place.
    """

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        limit_s = limit_of_variable(_LIMIT_S)
        meeting = _Meeting(group_name, rank, world_size, limit_s)
        self.communicator = connect(meeting.decision(), rank, world_size, group_name, limit_s)

    @classmethod
    def backend(cls) -> str:
        """The name of the backend."""
        return _NAME

    @classmethod
    def check_backend_availability(cls) -> bool:
        """True: what it needs comes with collops."""
        return True

    def destroy_group(self) -> None:
        """Leaves the group."""
        self.communicator.close()

    def allreduce(self, tensor: list[Any], allreduce_options: Any = None) -> None:
        """Reduces over the ranks, in place."""
        x = self._one("all_reduce", tensor)
        self.communicator.all_reduce(x, self._reduction("all_reduce", allreduce_options), out=x)

    def barrier(self, barrier_options: Any = None) -> None:
        """Waits until every rank has called it."""
        self.communicator.barrier()

    def reduce(self, tensor: list[Any], reduce_options: Any = None) -> None:
        """Reduces over the ranks into the root's tensor; the others keep theirs."""
        x = self._one("reduce", tensor)
        root = 0 if reduce_options is None else reduce_options.root_rank
        out = x if self.rank == root else None
        self.communicator.reduce(x, self._reduction("reduce", reduce_options), root, out=out)

    def broadcast(self, tensor: list[Any], broadcast_options: Any = None) -> None:
        """Copies the root's tensor into those of the others."""
        x = self._one("broadcast", tensor)
        self.communicator.broadcast(
            x, 0 if broadcast_options is None else broadcast_options.root_rank
        )

    def allgather(
        self, tensor_list: list[list[Any]], tensor: list[Any], allgather_options: Any = None
    ) -> None:
        """Copies the tensor of each rank into one of the list."""
        x = self._one("all_gather", tensor)
        outs = self._parts("all_gather", tensor_list, x)
        whole = self.communicator.all_gather(x.reshape(-1), out=_flat(x, self.world_size))
        for out, part in zip(outs, whole.reshape(self.world_size, *x.shape), strict=True):
            out[...] = part

    def reducescatter(
        self, tensor: list[Any], tensor_list: list[list[Any]], reducescatter_options: Any = None
    ) -> None:
        """Reduces each tensor of the list over the ranks, and leaves each rank one of them."""
        out = self._one("reduce_scatter", tensor)
        parts = self._parts("reduce_scatter", tensor_list, out)
        whole = _flat(out, self.world_size)
        for part, row in zip(parts, whole.reshape(self.world_size, *out.shape), strict=True):
            row[...] = part
        op = self._reduction("reduce_scatter", reducescatter_options)
        out[...] = self.communicator.reduce_scatter(whole, op).reshape(out.shape)

    def send(self, tensor: list[Any], send_options: Any) -> None:
        """Sends a tensor to another rank, and returns when it has been received."""
        self.communicator.send(self._one("send", tensor), send_options.dst_rank)

    def recv(self, tensor: list[Any], recv_options: Any) -> None:
        """Receives a tensor of another rank."""
        self.communicator.recv(self._one("recv", tensor), recv_options.src_rank)

    def _one(self, call: str, tensors: list[Any]) -> Any:
        """The tensor of a call; Ray passes it in a list, which is longer with several GPUs."""
        if len(tensors) != 1:
            self._refuse(
                call,
                ErrorCode.ERROR_UNSUPPORTED,
                f"takes one tensor of each rank, got {len(tensors)}: the calls whose names end in "
                "_multigpu are for NCCL",
            )
        return tensors[0]

    def _parts(self, call: str, lists: list[list[Any]], x: Any) -> list[Any]:
        """The list of a call, which has a tensor like `x` for each rank."""
        parts: list[Any] = self._one(call, lists)
        if len(parts) != self.world_size:
            self._refuse(
                call,
                ErrorCode.ERROR_INVALID_PARAM,
                f"the list must have {self.world_size} tensors, one per rank, got {len(parts)}",
            )
        for rank, part in enumerate(parts):
            if tuple(part.shape) != tuple(x.shape) or part.dtype != x.dtype:
                self._refuse(
                    call,
                    ErrorCode.ERROR_INVALID_TENSOR_DIM,
                    f"tensor {rank} of the list is {list(part.shape)} {part.dtype}, this rank's "
                    f"tensor {list(x.shape)} {x.dtype}: Ray's calls have one shape on all ranks",
                )
        return parts

    def _reduction(self, call: str, options: Any) -> Any:
        """The core's word for a reduction of Ray's."""
        op = ReduceOp.SUM if options is None else options.reduceOp
        if op.name not in _REDUCTIONS:
            self._refuse(
                call,
                ErrorCode.ERROR_UNSUPPORTED,
                f"op must be one of {', '.join(_REDUCTIONS)}, got {op.name}",
            )
        return _REDUCTIONS[op.name]

    def _refuse(self, call: str, code: ErrorCode, fault: str) -> NoReturn:
        """Raises an error of this rank's arguments, and sends it to the ranks in the call."""
        error = status_error(code, f"{call}: {fault}")
        self.communicator.refuse(call, error)
        raise error


def _flat(x: Any, size: int) -> Any:
    """Flat memory for `size` tensors like `x`."""
    count = size * math.prod(x.shape)
    return x.new_empty(count) if hasattr(x, "new_empty") else np.empty(count, x.dtype)


class _Meeting:
    """First contact of a group's ranks by keys of Ray's own store.

    Each of the others writes that it is there, under a number of its own; rank 0 takes what they
    have written, and answers each. So nothing is left of a meeting that has ended, and the next one
    may have the same name and another size.
    """

    def __init__(self, name: str, rank: int, size: int, limit_s: float) -> None:
        self._own = this_process(own_address(ray.util.get_node_ip_address()))
        self._own |= {"rank": rank, "size": size, "number": uuid.uuid4().hex}
        self._size, self._limit_s = size, limit_s
        self._keys = f"collops/{ray.get_runtime_context().namespace}/{name}"
        self.port: Any = None  # of rank 0, which has to stay open until all have connected

    def decision(self) -> dict[str, Any]:
        """Where the ranks connect, or the fault that ends their meeting."""
        return self._lead() if self._own["rank"] == 0 else self._follow()

    def _lead(self) -> dict[str, Any]:
        others: dict[int, dict[str, Any]] = {}

        def have_come() -> bool:
            others.clear()
            others.update({one["rank"]: one for one in self._others()})
            return len(others) >= self._size - 1 or bool(self._fault_of_sizes(others))

        until(have_come, self._limit_s)
        missing = [rank for rank in range(1, self._size) if rank not in others]
        if fault := self._fault_of_sizes(others):
            place = no_place(ErrorCode.ERROR_RANK_MISMATCH, fault)
        elif missing:
            place = self._too_late(f"{named(missing)} of {self._size}")
        else:
            ranks = [self._own, *(others[rank] for rank in range(1, self._size))]
            place, self.port = place_of(ranks, _ADVICE)
        for rank, one in others.items():
            _delete(self._key_of(rank))
            _write(f"{self._keys}/answer/{one['number']}", place)
        return place

    def _others(self) -> Iterator[dict[str, Any]]:
        """What the other ranks have written that are still alive, as far as that is known."""
        for key in internal_kv._internal_kv_list(f"{self._keys}/rank/", namespace=_SPACE):
            one = _read(key)
            if one is not None:
                here = one["host"] == self._own["host"]
                if not here or start_of(one["pid"]) == one["start"]:
                    yield one

    def _fault_of_sizes(self, others: dict[int, dict[str, Any]]) -> str:
        for rank, one in others.items():
            if one["size"] != self._size:
                return f"world_size is {self._size} on rank 0 and {one['size']} on rank {rank}"
        return ""

    def _follow(self) -> dict[str, Any]:
        rank = self._own["rank"]
        key, answer = self._key_of(rank), f"{self._keys}/answer/{self._own['number']}"
        place: dict[str, Any] | None = None
        _write(key, self._own)

        def is_decided() -> bool:
            nonlocal place
            if (place := _read(answer)) is not None:
                _delete(answer)
            elif (now := _read(key)) is not None and now["number"] != self._own["number"]:
                fault = (
                    f"rank {rank} is claimed twice, by pid {self._own['pid']} on "
                    f"{self._own['node']} and by pid {now['pid']} on {now['node']}"
                )
                place = no_place(ErrorCode.ERROR_RANK_MISMATCH, fault)
            return place is not None

        if not until(is_decided, self._limit_s + _ANSWER_S):
            _delete(key)
            place = self._too_late(f"rank 0 of {self._size}")
        assert place is not None
        return place

    def _key_of(self, rank: int) -> str:
        return f"{self._keys}/rank/{rank}"

    def _too_late(self, who: str) -> dict[str, Any]:
        fault = f"{who} did not connect within {self._limit_s:g} s: first contact by Ray's store"
        return no_place(ErrorCode.ERROR_TIMEOUT, fault)


def _read(key: str | bytes) -> Any:
    text = internal_kv._internal_kv_get(key, namespace=_SPACE)
    return None if text is None else json.loads(text)


def _write(key: str, value: dict[str, Any]) -> None:
    internal_kv._internal_kv_put(key, json.dumps(value), namespace=_SPACE)


def _delete(key: str) -> None:
    internal_kv._internal_kv_del(key, namespace=_SPACE)


register()
