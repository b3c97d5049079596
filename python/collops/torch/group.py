"""A process group of torch.distributed over a communicator of collops."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, ProcessGroup

from collops.core import act_in_words
from collops.errors import ErrorCode, raise_status
from collops.torch import private
from collops.torch.calls import Calls
from collops.torch.collective_calls import CollectiveCalls, MessageCalls, RootedCalls
from collops.torch.devices.calls import DeviceCalls
from collops.torch.devices.kinds import KINDS, Kind, first_tensor, kind_of
from collops.torch.graph_breaks import break_graphs, register_group
from collops.torch.hooks import Hooks
from collops.torch.identity import Identity
from collops.torch.meeting import meet
from collops.torch.reconfigure import NoRanks, Turns, meet_in_turn
from collops.torch.window_pool import WindowPool
from collops.torch.works import EndedWork, together

if TYPE_CHECKING:
    from collops.collectives.communicator import Communicator


_CPU = torch.device("cpu")


@break_graphs
class Group(Identity, CollectiveCalls, RootedCalls, MessageCalls, ProcessGroup):
    """The ranks of one group. torch.distributed makes it: ``init_process_group("collops")``.

    A call without ``async_op`` runs on the calling thread. A call with ``async_op`` is started, and
    runs in a thread of the communicator or in the thread that waits for it. Calls run in the order
    of their starts.

    Example:
        >>> import torch.distributed as dist
        >>> import collops.torch
        >>> dist.init_process_group("collops", store=dist.HashStore(), rank=0, world_size=1)
        >>> group = dist.group.WORLD
        >>> isinstance(group, collops.torch.Group), group.communicator.backend
        (True, 'shm')
        >>> dist.destroy_process_group()
    """

    def __init__(self, communicator: Communicator, store: Any, name: str) -> None:
        ProcessGroup.__init__(self, communicator.rank, communicator.size)
        Calls.__init__(self, communicator, name)
        Identity.__init__(self, store, name)
        self._splits = 0
        self._of_devices: dict[str, DeviceCalls] = {}  # by the kind
        self.hooks = Hooks()
        self.hooks.check_if_asked(self)
        self.turns: Turns | None = None  # of a group that gets other ranks by reconfigure()

    @property
    def communicator(self) -> Communicator:
        """The communicator that moves the data."""
        return self._comm

    @property
    def windows(self) -> WindowPool:
        """Memory that the other ranks read in place, used again from call to call."""
        return self._windows

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Whether allocate_tensor() gives memory that other ranks read in place."""
        return bool(torch.device(device).type == "cpu")

    def allocate_tensor(
        self, size: int, *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Memory of the pool, which other ranks read in place."""
        return self._windows.empty(size, dtype)

    def communicator_for(self, device: torch.device) -> Communicator:
        """The communicator for tensors on a device, ready for a call of the caller's.

        The first call for NPU or CUDA tensors connects the devices of all ranks, so all of them
        make it. A call on torch's current stream then comes after those that the group has made.
        """
        if device.type not in KINDS:
            return self._comm
        calls = self._connected(KINDS[device.type])
        calls.streams.join()
        return calls._comm

    def _device_calls(self, args: Any) -> Any:
        x = first_tensor(args)
        if self.others is not None:
            return None if x is None or x.is_cpu else _Others(self.others)
        kind = None if x is None else kind_of(x)
        return None if kind is None else self._connected(kind)

    def _connected(self, kind: Kind) -> DeviceCalls:
        """The calls on tensors of such devices; their communicator is made at the first one."""
        with self.lock:
            if (calls := self._of_devices.get(kind.name)) is None:
                store = PrefixStore(f"collops/{kind.name}", self._store)
                place = self.rank(), self.size()
                limit_s = self._comm.timeout_s
                communicator = meet(store, *place, self.group_name, limit_s, kind.backend)
                calls = DeviceCalls(communicator, self.group_name, self.log, kind)
                if self._coalesced is not None:
                    calls.start_coalescing()
                self._of_devices[kind.name] = calls
            return calls

    def barrier(self, opts: Any = None, **kwargs: Any) -> Any:
        """Waits until every rank has called it, and for the work so far on a device in use."""
        for calls in self._of_devices.values():
            calls.streams.synchronize()
        if self.others is not None:
            _synchronize(self.others._device_types)
        return super().barrier(opts, **kwargs)

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets how long a call waits for other ranks."""
        for communicator in self._communicators():
            communicator.timeout_s = timeout.total_seconds()
        if self.others is not None:
            for device in self.others._device_types:
                self.others._get_backend(device)._set_default_timeout(timeout)

    def register_pre_hook(self, hook_id: int, hook: Callable[[Any], object]) -> None:
        """Calls the hook before each call of the group, with its tensors, as torch 2.14 does."""
        self.hooks.add(self, hook_id, before=hook)

    def register_post_hook(self, hook_id: int, hook: Callable[[Any], object]) -> None:
        """Calls the hook after each call of the group, with its Work, as torch 2.14 does."""
        self.hooks.add(self, hook_id, after=hook)

    def unregister_pre_hook(self, hook_id: int) -> None:
        """Forgets a hook."""
        self.hooks.remove_before(hook_id)

    def unregister_post_hook(self, hook_id: int) -> None:
        """Forgets a hook."""
        self.hooks.remove_after(hook_id)

    def _communicators(self) -> list[Communicator]:
        return [*(calls._comm for calls in self._of_devices.values()), self._comm]

    _set_default_timeout = set_timeout

    def abort(self) -> None:
        """Ends all calls of all ranks."""
        reason = act_in_words("the process group was aborted")
        for communicator in self._communicators():
            communicator.abort(reason)
        if self.others is not None:
            self.others.abort()

    def end_device_calls_by(self, limit: float) -> None:
        """Ends calls on streams that have not ended by then, as time.monotonic() tells.

        They wait for a rank that does not make them, and shutdown() would wait for them.
        """
        for calls in self._of_devices.values():
            calls.end_by(limit, act_in_words("the process group was made smaller"))

    def shutdown(self) -> None:
        """Leaves the group."""
        for communicator in self._communicators():
            communicator.close()
        self.futures.end()
        if self.others is not None:
            self.others.shutdown()

    @property
    def supports_reconfigure(self) -> bool:
        """Whether the group was made with enable_reconfigure."""
        return self.turns is not None

    def _own_turns(self) -> Turns:
        if self.turns is None:
            raise_status(
                ErrorCode.ERROR_UNSUPPORTED,
                "reconfigure: this group keeps its ranks: make it with "
                "init_process_group(enable_reconfigure=True), which torch has from 2.14 on",
            )
        return self.turns

    def get_reconfigure_handle(self) -> str:
        """What torch.distributed._reconfigure() needs of this process."""
        return self._own_turns().handle

    def reconfigure(self, opts: Any) -> Any:
        """Leaves the ranks of the group, and meets those whose handles the options have.

        They meet at the group's store. If one does not come, the group has no ranks afterwards.
        """
        turns, own_s = self._own_turns(), self._comm.timeout_s
        if self.others is not None:
            raise_status(
                ErrorCode.ERROR_UNSUPPORTED,
                "reconfigure: tensors of other devices are in a group of torch's own beside this",
            )
        place = turns.place(opts)
        limit_s = own_s if opts.timeout is None else opts.timeout.total_seconds()
        self.shutdown()
        self._of_devices.clear()
        none: Any = NoRanks(self._rank, self._size, own_s)
        Calls.__init__(self, none, self.group_name)
        communicator = meet_in_turn(place, self.group_name, limit_s)
        communicator.timeout_s = own_s
        Calls.__init__(self, communicator, self.group_name)
        self._store, self._splits = place[-1], 0  # as one that joins has them
        return EndedWork([])

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """A barrier whose error names a missing rank, like the errors of every call of a group.

        torch.distributed.monitored_barrier() of torch before 2.14 refuses all backends except gloo,
        so call this method of the group. `wait_all_ranks` is accepted and has no effect.
        """
        self.log.add("monitored_barrier", [])
        with self.lock:
            call = self._comm.start("barrier")
        call.wait(None if timeout is None else timeout.total_seconds())

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Sequence[torch.device] | None = None,
    ) -> Group | None:
        """Makes a group of some ranks of this group, which call it; None on other ranks.

        torch.distributed.split_group() of torch before 2.15 needs a group on an accelerator, so
        call this method of the group. torch does not know the new group by its name then.

        Args:
            ranks: their numbers in this group, in the new group's order.
            timeout: how long its calls wait for other ranks; None: as this group's.
            opts: of other backends; ignored.
            group_name: a name that no other split of this group had; None: made of the ranks and
                the number of splits before.
            group_desc: what the group is for.
            device_types: of other backends; ignored.
        """
        self._splits += 1
        if self.rank() not in ranks:
            return None
        name = group_name or f"{self.group_name}/split {self._splits}: {list(ranks)}"
        limit_s = self._comm.timeout_s if timeout is None else timeout.total_seconds()
        store = PrefixStore(f"collops/{name}", self._store)
        communicator = meet(store, list(ranks).index(self.rank()), len(ranks), name, limit_s)
        group = Group(communicator, store, name)
        group._set_group_desc(group_desc or f"{self.group_desc}:split")
        return group

    def _start_coalescing(self, device: torch.device = _CPU) -> None:
        if self.others is not None and device.type != "cpu":
            self.others._start_coalescing(device)
            return
        for calls in self._of_devices.values():
            calls.start_coalescing()
        self._coalesced = []

    def _end_coalescing(self, device: torch.device = _CPU) -> Any:
        if self.others is not None and device.type != "cpu":
            return self.others._end_coalescing(device)
        works, self._coalesced = self._coalesced or [], None
        queued = [calls.end_coalescing() for calls in self._of_devices.values()]
        if len(queued) == 1 and not works:
            return queued[0]
        return together([*works, *queued], self)

    def batch_isend_irecv(
        self, names: Sequence[str], tensors: Sequence[torch.Tensor], ranks: Sequence[int]
    ) -> Any:
        """Sends and receives at once; torch_npu's batch_isend_irecv calls this.

        Args:
            names: "isend" or "irecv", for each tensor.
            tensors: what is sent, or filled.
            ranks: to whom or from whom, in this group's numbers.
        """
        device = tensors[0].device if tensors else _CPU
        self._start_coalescing(device)
        try:
            for name, x, rank in zip(names, tensors, ranks, strict=True):
                (self.send if name == "isend" else self.recv)([x], rank)
        except Exception:
            self._coalesced = None
            for calls in self._of_devices.values():
                calls.drop_batch()
            raise
        return self._end_coalescing(device)

    start_coalescing, end_coalescing = _start_coalescing, _end_coalescing


class _Others:
    """torch's group for other devices, under the names that calls of a group of ours have."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name, None) or getattr(self._group, _BEFORE[name])


# The names of torch before 2.13.
_BEFORE = {
    "all_gather_single": "_allgather_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
    "all_to_all_single": "alltoall_base",
}


def _synchronize(devices: Sequence[torch.device]) -> None:
    """Waits for the work of this process so far on devices of these types."""
    for device in devices:
        if device.type == "cuda" and not torch.cuda.is_initialized():
            continue
        if device.type not in ("cpu", "meta"):
            torch.get_device_module(device.type).synchronize()


register_group(Group)


@break_graphs
def last_calls(group: Group | None = None) -> list[str]:
    """The last calls of this rank in a group, as a time-out's message lists them.

    These are the calls of torch.distributed, and of the operators of collops.torch on the group.

    Args:
        group: a collops group; None: the default group.

    Returns:
        Up to 16 lines, the last call at the end: its number, name, and its tensor's shape and type.

    Raises:
        ArgumentError: the group is not of collops.

    Source of the semantics: the flight recorder of torch.distributed's NCCL backend.

    Example:
        >>> import torch, torch.distributed as dist
        >>> import collops.torch
        >>> store = dist.HashStore()
        >>> dist.init_process_group("collops", store=store, rank=0, world_size=1)
        >>> dist.all_reduce(torch.ones(4, 3))
        >>> dist.barrier()
        >>> _ = collops.torch.all_gatherv(torch.ones(2))
        >>> collops.torch.last_calls()
        ['1 all_reduce [4, 3] float32', '2 barrier', '3 collops.torch.all_gatherv [2] float32']
        >>> dist.destroy_process_group()
    """
    found = dist.group.WORLD if group is None else group
    if not isinstance(found, Group):
        raise_status(
            ErrorCode.ERROR_INVALID_PARAM,
            f"last_calls: the group must be one of collops, got {type(found).__name__}",
        )
    return found.log.lines()


def register_batches() -> None:
    """Puts the function in front of torch's, once for the process."""
    torchs = dist.batch_isend_irecv
    if not hasattr(torchs, "_collops"):
        batched = _batched(torchs)
        batched._collops = True  # type: ignore[attr-defined]
        dist.batch_isend_irecv = private.functions.batch_isend_irecv = batched


def _batched(torchs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(torchs)
    def batch_isend_irecv(p2p_op_list: Sequence[Any]) -> Any:
        group = _group_of_messages(p2p_op_list)
        if group is None:
            return torchs(p2p_op_list)
        private.check_messages(p2p_op_list)
        names = ["isend" if one.op is dist.isend else "irecv" for one in p2p_op_list]
        tensors = [one.tensor for one in p2p_op_list]
        return [group.batch_isend_irecv(names, tensors, [one.group_peer for one in p2p_op_list])]

    return batch_isend_irecv


def _group_of_messages(messages: Sequence[Any]) -> Group | None:
    """The group, if the messages are of CUDA tensors and of a collops group, and have no tags.

    A tag is refused where the message is started.
    """
    if not messages or not all(isinstance(one, dist.P2POp) for one in messages):
        return None  # which torch refuses
    if any(one.tag for one in messages) or not all(one.tensor.is_cuda for one in messages):
        return None
    group = messages[0].group or dist.group.WORLD
    return group if isinstance(group, Group) else None
