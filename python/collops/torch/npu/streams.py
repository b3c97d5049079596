"""The streams of a group's calls on NPU tensors: their order, and what waits for them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class NpuStreams:
    """One order of a group's calls, whatever streams they are put on; the host never waits.

    A call that is not asynchronous goes to torch's current stream, one that is goes to a stream of
    the group's own. HCCL runs the calls of a communicator in one order, so that a call on another
    stream than the one before waits for that one there.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.own: Any = None
        self._last: Any = None  # the stream of the last call
        self._was_captured = False  # the last call

    def join(self) -> None:
        """Puts torch's current stream after the calls so far; the next call goes there."""
        self._follow(_npu().current_stream(self.device))

    @contextlib.contextmanager
    def apart(self, tensors: Sequence[torch.Tensor]) -> Iterator[None]:
        """Makes the group's own stream the current one, after the work so far.

        Its work keeps the memory of the tensors from being given out again.
        """
        if self.own is None:
            self.own = _npu().Stream(device=self.device)
        self.own.wait_stream(_npu().current_stream(self.device))
        self._follow(self.own)
        try:
            with _npu().stream(self.own):
                yield
        finally:  # also after an error: a part of the work may be on the stream
            for x in tensors:
                x.record_stream(self.own)

    def event(self) -> Any:
        """An event after the current stream's work so far."""
        return _npu().current_stream(self.device).record_event()

    def wait(self, event: Any) -> None:
        """Makes torch's current stream wait for an event."""
        _npu().current_stream(self.device).wait_event(event)

    def synchronize(self) -> None:
        """Makes the host wait for the calls so far, and for the current stream's work."""
        if self._last is not None:
            self._last.synchronize()
        _npu().current_stream(self.device).synchronize()

    def _follow(self, stream: Any) -> None:
        # A captured stream cannot wait for what is outside of the capture, nor the other way round:
        # there the program orders them, by when it replays the graph.
        captured = bool(_npu().is_current_stream_capturing())
        both = captured == self._was_captured
        if self._last is not None and self._last != stream and both:
            stream.wait_stream(self._last)
        self._last, self._was_captured = stream, captured


def _npu() -> Any:
    """torch.npu, which torch_npu adds."""
    return torch.npu
