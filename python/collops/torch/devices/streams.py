"""The streams of a group's calls on device tensors: their order, and what waits for them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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
