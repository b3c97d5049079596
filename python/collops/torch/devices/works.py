"""What a call on device tensors returns: a torch.distributed.Work whose end is an event."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import Work

from collops.torch.graph_breaks import break_graphs
from collops.torch.memory import as_got

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.torch.devices.streams import DeviceStreams

_NO_TIMEOUT = timedelta(0)


@break_graphs
class QueuedWork(Work):
    """A call that is on a stream.

    `end` is an event after it; None: it is on the stream that was current, whose later work follows
    it anyway.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], streams: DeviceStreams, end: Any) -> None:
        super().__init__()
        self.tensors = tensors
        self.source = -1  # the rank that sent a message
        self._streams = streams
        self._end = end
        self._future: torch.futures.Future[Any] | None = None
        if end is not None:  # now, while the call's stream is the current one
            self._future = self._new_future()

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Makes torch's current stream wait for the call; the host goes on."""
        if self._end is not None:
            self._streams.wait(self._end)
        return True

    def synchronize(self) -> None:
        """As wait()."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the device has done an asynchronous call; true of others once they are queued."""
        return self._end is None or bool(self._end.query())

    is_success = is_completed

    def exception(self) -> None:
        """None: what goes wrong on a stream is raised by torch's synchronize."""

    def result(self) -> list[torch.Tensor]:
        """The tensors that the call writes, for work on torch's current stream."""
        self.wait()
        return as_got(self.tensors)

    def source_rank(self) -> int:
        """The rank that sent the message."""
        return self.source

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        """A future that is done; its callbacks run on streams that wait for the call."""
        return self._new_future() if self._future is None else self._future

    def _new_future(self) -> torch.futures.Future[Any]:
        future: torch.futures.Future[Any] = torch.futures.Future(devices=[self._streams.device])
        future.set_result(as_got(self.tensors))
        return future


@break_graphs
class BatchedWork(QueuedWork):
    """A message of a batch that is being made; it ends with the batch.

    Within the batch wait() does nothing: dist.send and dist.recv call it there.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], streams: DeviceStreams) -> None:
        super().__init__(tensors, streams, None)
        self._batch: QueuedWork | None = None
        self._error: Exception | None = None
        self._ended: torch.futures.Future[Any] | None = None  # which the future follows

    def follow(self, batch: QueuedWork) -> None:
        """Takes the work of the whole batch, which is on a stream now."""
        self._batch = batch
        self._end_future()

    def lose(self, error: Exception) -> None:
        """Takes the error because of which the message will not be on a stream."""
        self._error = error
        self._end_future()

    def _end_future(self) -> None:
        if self._ended is not None:
            self._ended.set_result(None)

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Makes torch's current stream wait for the batch; the host goes on."""
        if self._error is not None:
            raise self._error
        return self._batch is None or self._batch.wait(timeout)

    def is_completed(self) -> bool:
        """Whether the device has done the batch, or will not do it."""
        if self._batch is None:
            return self._error is not None
        return self._batch.is_completed()

    def is_success(self) -> bool:
        """Whether the device has done the batch."""
        return self._error is None and self.is_completed()

    def exception(self) -> Exception | None:  # type: ignore[override]
        """The error because of which there was no batch."""
        return self._error

    def get_future(self) -> torch.futures.Future[Any]:
        """A future that is done once the batch is on a stream, for which its callbacks wait."""
        if self._future is None:
            self._ended = torch.futures.Future(devices=[self._streams.device])
            self._future = self._ended.then(lambda _: self.result())
            if self._batch is not None or self._error is not None:
                self._end_future()
        return self._future


@break_graphs
class QueuedSeveral(QueuedWork):
    """Several calls that are on streams."""

    def __init__(self, works: Sequence[QueuedWork], streams: DeviceStreams) -> None:
        super().__init__([x for work in works for x in work.tensors], streams, None)
        self._works = works

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Makes torch's current stream wait for all of them; the host goes on."""
        for work in self._works:
            work.wait(timeout)
        return True

    def is_completed(self) -> bool:
        """Whether the device has done all of them."""
        return all(work.is_completed() for work in self._works)

    is_success = is_completed

    def get_future(self) -> torch.futures.Future[Any]:
        """A future whose callbacks run on streams that wait for all of them."""
        self.wait()
        return self._new_future()
