"""The streams of a group's calls on device tensors, and the Works of these calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work

from collops.torch.graph_breaks import break_graphs
from collops.torch.memory import as_got


class DeviceStreams:
    """One order of a group's calls, whatever streams they are put on; the host never waits.

    A call that is not asynchronous goes to torch's current stream, one that is goes to a stream of
    the group's own. A backend runs the calls of a communicator in one order, so that a call on
    another stream than the one before waits for that one there.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._module: Any = torch.get_device_module(device)
        self.own: Any = None
        self._last: dict[
            bool, Any
        ] = {}  # the stream of the last call, and of the last captured one

    def join(self) -> None:
        """Puts torch's current stream after the calls so far; the next call goes there."""
        self._follow(self._module.current_stream(self.device))

    @contextlib.contextmanager
    def apart(self, tensors: Sequence[torch.Tensor]) -> Iterator[None]:
        """Makes the group's own stream the current one, after the work so far.

        Its work keeps the memory of the tensors from being given out again.
        """
        if self.own is None:
            self.own = self._module.Stream(device=self.device)
        self.own.wait_stream(self._module.current_stream(self.device))
        self._follow(self.own)
        try:
            with self._module.stream(self.own):
                yield
        finally:  # also after an error: a part of the work may be on the stream
            for x in tensors:
                x.record_stream(self.own)

    def event(self) -> Any:
        """An event after the current stream's work so far."""
        return self._module.current_stream(self.device).record_event()

    def wait(self, event: Any) -> None:
        """Makes torch's current stream wait for an event."""
        self._module.current_stream(self.device).wait_event(event)

    def synchronize(self) -> None:
        """Makes the host wait for the calls so far, and for the current stream's work."""
        if False in self._last:
            self._last[False].synchronize()
        self._module.current_stream(self.device).synchronize()

    def is_idle(self) -> bool:
        """Whether the device has done the calls so far, and what is before them on the stream."""
        return False not in self._last or bool(self._last[False].query())

    def _follow(self, stream: Any) -> None:
        # A captured stream cannot wait for what is outside of the capture, nor the other way round:
        # there the program orders them, by when it replays the graph.
        captured = bool(self._module.is_current_stream_capturing())
        last = self._last.get(captured, stream)
        if last != stream and self._is_captured(last) == captured:
            stream.wait_stream(last)
        self._last[captured] = stream

    def _is_captured(self, stream: Any) -> bool:
        """Whether a capture goes on there: another one than before may be under way."""
        with self._module.stream(stream):
            return bool(self._module.is_current_stream_capturing())


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
