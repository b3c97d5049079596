"""A group's calls on NPU tensors, on a communicator of the backend hccl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from collops.collectives.messages import RecvFrom, SendTo
from collops.torch.collective_calls import CollectiveCalls
from collops.torch.memory import source, target
from collops.torch.message_calls import MessageCalls
from collops.torch.npu.streams import NpuStreams
from collops.torch.npu.works import QueuedWork
from collops.torch.reductions import Reduction, reduction_of
from collops.torch.rooted_calls import RootedCalls
from collops.torch.works import Several

if TYPE_CHECKING:
    from collops.collectives.communicator import Communicator
    from collops.torch.call_log import CallLog


class NpuMemory:
    """New memory of an NPU; torch_npu's allocator has it from earlier calls."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised elements, flat."""
        return torch.empty(elements, dtype=dtype, device=self._device)


class NpuCalls(CollectiveCalls, RootedCalls, MessageCalls):
    """The calls of a group whose tensors are on an NPU. Each is put on a stream and returns.

    `_move` and the messages differ from those on CPU tensors; what a call is made of does not.
    """

    in_place = False  # HCCL documents no call that takes overlapping memory, but for all_reduce

    def __init__(self, communicator: Communicator, name: str, log: CallLog) -> None:
        super().__init__(communicator, name)
        self.log = log  # the group's: one order of calls
        device = torch.device("npu", torch.npu.current_device())
        self.streams = NpuStreams(device)
        self._staging: Any = NpuMemory(device)
        self._messages: list[Any] | None = None  # of the batch that is being made

    def _move(
        self, opts: Any, name: str, args: tuple[Any, ...], tensors: Any, finish: Any = None
    ) -> Any:
        self.log.add(name, tensors)
        self._began = True

        def run() -> None:
            value = getattr(self._comm, name)(*args)
            if finish is not None:
                finish(value)

        used = [*(value for value in args if isinstance(value, torch.Tensor)), *tensors]
        return self._noted(self._put(run, used, tensors, opts is None or opts.asyncOp))

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

    def _reduction(self, call: str, op: Any, dtype: torch.dtype) -> Reduction:
        """HCCL has no average: the sum is divided by the number of ranks on the stream."""
        found = reduction_of(call, op, dtype)
        if found.name != "avg":
            return found
        return Reduction("sum", found.prepare, self._divide)

    def _divide(self, total: torch.Tensor) -> None:
        if total.is_floating_point():
            total.div_(self._comm.size)
        else:
            total.div_(self._comm.size, rounding_mode="trunc")

    def send(self, tensors: Any, to: int, tag: int = 0) -> Any:
        """Puts a message to another rank on the group's own stream."""
        [x] = tensors
        return self._message("send", SendTo(source("send", x), to, tag), x, None)

    def _receive(self, tensors: Any, from_: int | None, tag: int) -> Any:
        [out] = tensors
        own = target("recv", out)
        return self._message("recv", RecvFrom(own.memory, from_, tag), out, own.finish)

    def _message(self, name: str, message: Any, x: torch.Tensor, finish: Any) -> QueuedWork:
        self.log.add(name, [x])
        with self.lock:
            if self._messages is not None:
                self._messages.append((message, x, finish))
                return QueuedWork([x], self.streams, None)
            work = self._exchange([(message, x, finish)])
        work.source = -1 if isinstance(message, SendTo) else message.source
        return work

    def _exchange(self, batch: list[Any]) -> QueuedWork:
        """Several messages at once, so that none waits for another one of this rank."""

        def run() -> None:
            self._comm.exchange([message for message, _, _ in batch])
            for _, _, finish in batch:
                if finish is not None:
                    finish()

        tensors = [x for _, x, _ in batch]
        moved = [m.x if isinstance(m, SendTo) else m.out for m, _, _ in batch]
        return self._put(run, [*tensors, *moved], tensors, is_async=True)

    def start_coalescing(self) -> None:
        """Begins a batch: messages wait for its end, and then run at once."""
        self._coalesced, self._messages = [], []

    def end_coalescing(self) -> Any:
        """Ends the batch; its Work is that of all calls since."""
        works, self._coalesced = self._coalesced or [], None
        batch, self._messages = self._messages or [], None
        if batch:
            with self.lock:
                works.append(self._exchange(batch))
        return Several(works, self)
