"""Messages between two ranks of a group, under the names that torch.distributed calls."""

from __future__ import annotations

import contextlib
from typing import Any

from collops.errors import Error
from collops.torch.calls import Calls, placed
from collops.torch.memory import as_passed, source, target
from collops.torch.works import MessageWork


class MessageCalls(Calls):
    """send and recv; they never wait for collective calls that were started before."""

    @placed
    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Any:
        """Starts a message to another rank."""
        [x] = tensors = as_passed(tensors)
        self.log.add("send", tensors)
        try:
            given = source("send", x)
        except Error:
            given = x  # which the communicator refuses, and tells the other rank
        with self.lock:
            self._note_thread()
            call = self._comm.start("send", given, dstRank, tag)
        return self._noted(MessageWork(call, [x], self))

    @placed
    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> Any:
        """Starts to receive a message of another rank."""
        return self._receive(tensors, srcRank, tag)

    @placed
    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Starts to receive a message of any rank."""
        return self._receive(tensors, None, tag)

    def _receive(self, tensors: Any, from_: int | None, tag: int) -> Any:
        [out] = tensors = as_passed(tensors)
        self.log.add("recv", tensors)
        try:
            own = target("recv", out)
        except Error as error:
            with self.lock, contextlib.suppress(Error):
                self._comm.start("recv", out, from_, tag)  # refuses it, and tells the other rank
            raise error
        with self.lock:
            self._note_thread()
            call = self._comm.start("recv", own.memory, from_, tag, return_source=True)
        work = MessageWork(call, [out], self)

        def finish(value: Any) -> None:
            work.source = value[1]
            if own.finish is not None:
                own.finish()

        work.follow(finish)
        return self._noted(work)
