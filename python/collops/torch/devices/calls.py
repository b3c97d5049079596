"""A group's calls on the tensors of a device with streams, on a communicator of their own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from collops.collectives.messages import RecvFrom, SendTo
from collops.errors import ErrorCode, raise_status, status_error
from collops.tensors import torch_mode
from collops.torch.collective_calls import CollectiveCalls, MessageCalls, RootedCalls
from collops.torch.devices.streams import BatchedWork, DeviceStreams, QueuedSeveral, QueuedWork
from collops.torch.memory import as_passed, source, target
from collops.torch.reductions import Reduction, reduction_of

if TYPE_CHECKING:
    from collops.collectives.communicator import Communicator
    from collops.torch.devices.kinds import Kind
    from collops.torch.works import CallLog, Mode

_LOOK_S = 0.001  # between two looks at a stream


class _Queued(NamedTuple):
    """A message, its tensor of the caller, what follows it, and its own Work within a batch.

    `mode`: torch's mode at the start, in which it is finished and its future's callbacks run.
    """

    message: Any
    x: torch.Tensor
    finish: Callable[[], object] | None
    mode: Mode
    work: BatchedWork | None = None


def _lose(batch: list[_Queued], error: Exception) -> None:
    for one in batch:
        if one.work is not None:
            with one.mode():
                one.work.lose(error)


class DeviceCalls(CollectiveCalls, RootedCalls, MessageCalls):
    """The calls of a group whose tensors are on a device. Each is put on a stream and returns.

    `_move` and the messages differ from those on CPU tensors; what a call is made of does not.
    """

    def __init__(self, communicator: Communicator, name: str, log: CallLog, kind: Kind) -> None:
        super().__init__(communicator, name)
        self._kind = kind
        self.in_place = kind.in_place
        self.log = log  # the group's: one order of calls
        device = torch.device(kind.name, kind.module.current_device())
        self.streams = DeviceStreams(device)
        self._messages: list[_Queued] | None = None  # of the batch that is being made

    def _move(
        self,
        opts: Any,
        called: str,
        name: str,
        args: tuple[Any, ...],
        tensors: Any,
        finish: Any = None,
    ) -> Any:
        self.log.add(called, tensors)
        self._began = True

        def run() -> None:
            value = getattr(self._plain, name)(*args)
            if finish is not None:
                finish(value)

        used = [*(value for value in args if isinstance(value, torch.Tensor)), *tensors]
        return self._noted(self._put(run, used, tensors, opts.asyncOp))

    def _put(self, run: Any, used: Any, tensors: Any, is_async: bool) -> QueuedWork:
        """Runs a function whose work goes to the current stream or, asynchronous, to another."""
        try:
            if not is_async:
                self.streams.join()
                run()
                return QueuedWork(tensors, self.streams, None)
            with self.streams.apart(used):
                run()
                return QueuedWork(tensors, self.streams, self.streams.event())
        except Exception as error:
            self.log.explain(error)
            raise

    def _scratch(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        # New memory, which torch's allocator has from earlier calls.
        return torch.empty(elements, dtype=dtype, device=self.streams.device)

    def _reduction(self, call: str, op: Any, dtype: torch.dtype) -> Reduction:
        """Without an average the sum is divided by the number of ranks on the stream."""
        found = reduction_of(call, op, dtype)
        if found.name != "avg" or self._kind.averages:
            return found
        return Reduction("sum", found.prepare, self._divide)

    def _divide(self, total: torch.Tensor) -> None:
        if total.is_floating_point() or total.is_complex():
            total.div_(self._size)
        else:
            total.div_(self._size, rounding_mode="trunc")

    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Any:
        """Puts a message to another rank on the group's own stream."""
        [x] = as_passed(tensors)
        return self._message("send", SendTo(source("send", x), dstRank, tag), x, None)

    def _receive(self, tensors: Any, from_: int | None, tag: int) -> Any:
        [out] = as_passed(tensors)
        own = target("recv", out)
        return self._message("recv", RecvFrom(own.memory, from_, tag), out, own.finish)

    def _message(self, name: str, message: Any, x: torch.Tensor, finish: Any) -> QueuedWork:
        self.log.add(name, [x])
        with self.lock:
            if self._messages is not None:
                queued = BatchedWork([x], self.streams)
                self._messages.append(_Queued(message, x, finish, torch_mode(), queued))
                return queued
            work = self._exchange([_Queued(message, x, finish, torch_mode())])
        work.source = -1 if isinstance(message, SendTo) else message.source
        return work

    def _exchange(self, batch: list[_Queued]) -> QueuedWork:
        """Several messages at once, so that none waits for another one of this rank."""

        def run() -> None:
            self._comm.exchange([one.message for one in batch])
            for one in batch:
                if one.finish is not None:
                    with one.mode():
                        one.finish()

        tensors = [one.x for one in batch]
        messages = [one.message for one in batch]
        moved = [m.x if isinstance(m, SendTo) else m.out for m in messages]
        try:
            whole = self._put(run, [*tensors, *moved], tensors, is_async=True)
        except Exception as error:
            _lose(batch, error)
            raise
        for one in batch:
            if one.work is not None:
                with one.mode():
                    one.work.follow(whole)
        return whole

    def end_by(self, limit: float, reason: str) -> None:
        """Ends the calls on streams that have not ended by then, as time.monotonic() tells."""
        with contextlib.suppress(RuntimeError):  # of a call that failed on the device
            while not self.streams.is_idle():
                if time.monotonic() > limit:
                    self._comm.abort(reason)
                    return
                time.sleep(_LOOK_S)

    def start_coalescing(self) -> None:
        """Begins a batch: messages wait for its end, and then run at once.

        torch.distributed does not say that an exception ended a block; the next block finds it out.

        Raises:
            AbortedError: messages of an earlier batch are left, so that this rank and those that
                have put theirs on a stream are not at the same message any more.
        """
        lost = self.drop_batch()
        if lost:
            raise_status(ErrorCode.ERROR_ABORTED, lost)
        self._coalesced, self._messages = [], []

    def drop_batch(self) -> str:
        """Forgets a batch that does not end. If it has messages, ends all calls of all ranks.

        Returns:
            What was lost, which the other ranks get as the reason; empty: nothing.
        """
        left, self._coalesced, self._messages = self._messages, None, None
        if not left:
            return ""
        messages = "1 message" if len(left) == 1 else f"{len(left)} messages"
        lost = (
            f"an exception ended a batch of rank {self._rank} before its end: "
            f"{messages} of it will never be sent or received"
        )
        self._comm.abort(lost)
        _lose(left, status_error(ErrorCode.ERROR_ABORTED, lost))
        return lost

    def end_coalescing(self) -> Any:
        """Ends the batch; its Work is that of all calls since."""
        works, self._coalesced = self._coalesced or [], None
        batch, self._messages = self._messages or [], None
        if batch:
            with self.lock:
                works.append(self._exchange(batch))
        return self._together(works)

    def _together(self, works: list[Any]) -> QueuedWork:
        return QueuedSeveral(works, self.streams)
