"""What a call of a group returns: a torch.distributed.Work that has ended or is under way."""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import Work

from collops.tensors import torch_mode
from collops.torch.futures import alone
from collops.torch.graph_breaks import break_graphs
from collops.torch.memory import as_got

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from collops.collectives.started import StartedCall
    from collops.torch.calls import Calls

_NO_TIMEOUT = timedelta(0)


@break_graphs
class EndedWork(Work):
    """A call that has ended well."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.tensors = tensors

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Returns at once."""
        return True

    def is_completed(self) -> bool:
        """Always true."""
        return True

    is_success = is_completed

    def exception(self) -> None:
        """There is none."""

    def result(self) -> list[torch.Tensor]:
        """The tensors that the call has written."""
        return as_got(self.tensors)

    def synchronize(self) -> None:
        """CPU tensors are complete once the call has ended."""

    def get_future(self) -> torch.futures.Future[Any]:
        """A future that is done."""
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(as_got(self.tensors))
        return future


class _Running(Work):
    """A call that may be under way. Any thread may wait for it, any number of times.

    What follows the call, and the callbacks of its future, run in torch's mode at its start
    (inference_mode, no_grad), whichever thread runs them.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], group: Calls, make_future: Any) -> None:
        super().__init__()
        self.tensors = tensors
        self._group = group
        self._make_future = make_future
        self._mode = torch_mode()
        self._future: torch.futures.Future[Any] | None = None
        self._lock = threading.Lock()  # two threads may wait, or ask for the future
        self._error: BaseException | None = None

    def _settle(self, timeout_s: float | None) -> None:
        """Waits for the end, and raises the call's error; may be called again."""
        raise NotImplementedError

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Waits for the end of the call, and raises its error."""
        try:
            self._settle(timeout.total_seconds() if timeout > _NO_TIMEOUT else None)
        except BaseException as error:
            self._error = error
            self._group.log.explain(error)
            raise
        return True

    def is_success(self) -> bool:
        """Whether the call has ended well."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """The error of a call that has ended, or None."""
        if self._error is None and self.is_completed():
            try:
                self.wait()
            except Exception as error:
                return error
        return self._error

    def result(self) -> list[torch.Tensor]:
        """The tensors that the call writes; waits for its end."""
        self.wait()
        return as_got(self.tensors)

    def synchronize(self) -> None:
        """As wait()."""
        self.wait()

    def get_future(self) -> torch.futures.Future[Any]:
        """A future that ends with the call; its value is a list of tensors, or it raises."""
        with self._lock:
            if self._future is None:
                self._future = self._make_future(self.wait, self._take, self._mode)
            return self._future

    def _take(self) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return as_got(self.tensors)


@break_graphs
class StartedWork(_Running):
    """A call that the communicator has started.

    `finish` follows the call once, with what it returned.
    """

    def __init__(
        self,
        call: StartedCall,
        tensors: Sequence[torch.Tensor],
        group: Calls,
        finish: Callable[[Any], None] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(tensors, group, group.futures.of)
        self._call = call
        self._finish = finish
        self._timeout_s = timeout_s

    def _settle(self, timeout_s: float | None) -> None:
        value = self._call.wait(timeout_s or self._timeout_s)
        if self._finish is None:
            return
        with self._lock:  # no thread goes on before the values are in place
            if self._finish is not None:
                with self._mode():
                    self._finish(value)
                self._finish = None

    def is_completed(self) -> bool:
        """Whether the call has ended, well or not; the tensors have their values then."""
        if not self._call.done():
            return False
        with contextlib.suppress(Exception):  # wait() raises it
            self._settle(None)
        return True


@break_graphs
class MessageWork(StartedWork):
    """A message that the communicator has started to send or receive; `source` is who sent it."""

    def __init__(
        self,
        call: StartedCall,
        tensors: Sequence[torch.Tensor],
        group: Calls,
    ) -> None:
        super().__init__(call, tensors, group)
        self._make_future = alone
        self.source = -1

    def follow(self, finish: Callable[[Any], None]) -> None:
        """Sets what follows the message, before anyone waits for it."""
        self._finish = finish

    def source_rank(self) -> int:
        """The rank that sent the message; waits for it."""
        self.wait()
        return self.source

    _source_rank = source_rank


@break_graphs
class Several(_Running):
    """Several calls, which end together."""

    def __init__(self, works: Sequence[Any], group: Calls) -> None:
        super().__init__([tensor for work in works for tensor in work.tensors], group, alone)
        self._works = works

    def _settle(self, timeout_s: float | None) -> None:
        for work in self._works:
            work.wait(timedelta(seconds=timeout_s or 0))

    def is_completed(self) -> bool:
        """Whether all have ended, well or not."""
        return all(work.is_completed() for work in self._works)
