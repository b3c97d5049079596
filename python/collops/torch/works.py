"""What a call returns, its Work and future, and what they need of its group: log and futures."""

from __future__ import annotations

import atexit
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import Work

from collops.core import leave
from collops.errors import Error, ErrorCode
from collops.tensors import torch_mode
from collops.torch.graph_breaks import break_graphs
from collops.torch.memory import as_got

if TYPE_CHECKING:
    Mode = Callable[[], AbstractContextManager[Any]]


_KEPT = 16
_IN_ERRORS = 5
# Errors for which it matters what this rank has called before.
_DISAGREEMENTS = (
    ErrorCode.ERROR_TIMEOUT,
    ErrorCode.ERROR_RANK_MISMATCH,
    ErrorCode.ERROR_PEER_LOST,
)
# What the core advises after a failure, and what users of a group call instead.
_ADVICE = "go on with shrink(), or make a new one on all ranks"
_ADVICE_IN_GROUPS = (
    "go on with collops.torch.shrink(), or with destroy_process_group() and "
    "init_process_group() on all ranks"
)
_END_S = 2.0  # for the callbacks of a future whose call has ended


class CallLog:
    """The last calls of one rank of a group. Adding one takes less than a microsecond."""

    def __init__(self, rank: int, group: str) -> None:
        self.count = 0
        self._rank = rank
        self._group = group
        self._calls: deque[tuple[int, str, Any, Any]] = deque(maxlen=_KEPT)

    def add(self, name: str, tensors: Sequence[Any]) -> None:
        """Notes a call that begins or is started."""
        self.count += 1
        x = tensors[0] if tensors else None
        entry = (None, None) if x is None else (x.shape, x.dtype)
        self._calls.append((self.count, name, *entry))

    def take_back(self) -> None:
        """Forgets the last call, which is not made."""
        self.count -= 1
        self._calls.pop()

    def lines(self) -> list[str]:
        """The calls, the last one at the end, such as ``"17 all_reduce [4, 3] float32"``."""
        return [
            f"{number} {name}" + ("" if shape is None else f" {list(shape)} {str(dtype)[6:]}")
            for number, name, shape, dtype in list(self._calls)  # another thread may add one
        ]

    def explain(self, error: BaseException) -> None:
        """Puts the message of an error into the words of groups.

        Adds the last calls where other ranks have a part in the error.
        """
        if not isinstance(error, Error):
            return
        if _ADVICE in error.message:
            error.message = error.message.replace(_ADVICE, _ADVICE_IN_GROUPS)
            error.args = (error.message,)
        if error.code not in _DISAGREEMENTS:
            return
        told = vars(error).setdefault("groups_told", [])  # two threads may wait for one call
        if self._group not in told:
            told.append(self._group)
            last = ", ".join(self.lines()[-_IN_ERRORS:])
            where = f"rank {self._rank} in group {self._group!r}"
            error.message += f"; the last calls of {where}: {last}"
            error.args = (error.message,)


class Futures:
    """Ends calls for whose futures somebody has asked, in the order in which they were asked for.

    The thread exists from the first one on; collective calls end in the order of their starts, so
    that none waits here for one that comes later.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = False
        self.asked = False  # somebody has asked for the future of a call under way
        self._lock = threading.Lock()

    def follow(self, end: Callable[[], object]) -> None:
        """Calls `end`, which waits for a call and completes its future, in the thread."""
        self.asked = True
        if self._ended or threading.current_thread() is self._thread:
            follow_alone(end)  # a callback may wait for this future in that thread
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_end_each, args=(self._work,), name="collops futures", daemon=True
                )
                _threads[self._thread] = self._work
                self._thread.start()
        self._work.put(end)

    def end(self) -> None:
        """Ends the thread after the futures that were asked for."""
        with self._lock:
            self._ended = True
            if self._thread is not None:
                self._work.put(None)
                self._thread = None


class Caller:
    """What a Work needs of the group that made its call."""

    log: CallLog
    futures: Futures


def follow_alone(end: Callable[[], object]) -> None:
    """As Futures.follow(), in a thread of its own: a message may wait for any other call."""
    futures = Futures()
    futures.follow(end)
    futures.end()


def _end_each(work: queue.SimpleQueue[Any]) -> None:
    try:
        while (end := work.get()) is not None:
            end()
            del end  # it holds tensors
    finally:
        _threads.pop(threading.current_thread(), None)


# The threads that complete futures, and what they are asked.
_threads: dict[threading.Thread, queue.SimpleQueue[Any]] = {}


@atexit.register
def _end_threads() -> None:
    """Ends the threads: one that came back into torch's C++ afterwards would end the process."""
    alive = [(thread, work) for thread, work in list(_threads.items()) if thread.is_alive()]
    if alive:
        leave()  # so that no thread waits for a call
    for thread, work in alive:
        work.put(None)
        thread.join(_END_S)


_NO_TIMEOUT = timedelta(0)


@break_graphs
class EndedWork(Work):
    """A call that has ended well."""

    __slots__ = ("__dict__", "tensors")  # without a dict, unless somebody sets another attribute

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        Work.__init__(self)
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


class Together:
    """Several Works, as the call of one that ends with them."""

    def __init__(self, works: Sequence[Any]) -> None:
        self._works = works

    def wait(self, timeout_s: float) -> None:
        """Waits for each of them; 0.0: as long as its group does."""
        for work in self._works:
            work.wait(timedelta(seconds=timeout_s))

    def done(self) -> bool:
        """Whether all have ended, well or not."""
        return all(work.is_completed() for work in self._works)


@break_graphs
class StartedWork(Work):
    """A call that may be under way. Any thread may wait for it, any number of times.

    What follows the call, and the callbacks of its future, run in torch's mode at its start
    (inference_mode, no_grad), whichever thread runs them. As with torch's own backends they have
    run when wait() returns; the first thread that has waited runs them.

    Attributes:
        call: the core's started call, or Together.
        tensors: what the call writes.
        finish: follows the call once, with what it returned; None: nothing.
        timeout_s: of the call; 0.0: as the group's.
        in_order: whether it ends after the calls of the group that were started before.
    """

    finish: Callable[[Any], object] | None = None
    timeout_s = 0.0
    in_order = True
    _error: BaseException | None = None
    _future: torch.futures.Future[Any] | None = None
    _ended: torch.futures.Future[Any]  # which the future follows
    _completed: threading.Event
    _completing = 0  # the thread that completes the future

    def __init__(self, call: Any, tensors: Sequence[torch.Tensor], group: Caller) -> None:
        super().__init__()
        self.call = call
        self.tensors = tensors
        self._group = group
        self._mode = nullcontext if torch.is_grad_enabled() else torch_mode()
        self._lock = threading.Lock()  # two threads may wait, or ask for the future

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Waits for the end of the call, and raises its error."""
        limit_s = timeout.total_seconds() if timeout > _NO_TIMEOUT else self.timeout_s
        try:
            value = self.call.wait(limit_s)
            if self.finish is not None:
                self._follow(value)
        except BaseException as error:
            self._error = error
            self._group.log.explain(error)
            if self._future is not None and self.call.done():
                self._complete()
            raise
        if self._future is not None:
            self._complete()
        return True

    def _follow(self, value: Any) -> None:
        with self._lock:  # no thread goes on before the values are in place
            if self.finish is not None:
                with self._mode():
                    self.finish(value)
                self.finish = None

    def is_completed(self) -> bool:
        """Whether the call has ended, well or not; the tensors have their values then."""
        if not self.call.done():
            return False
        with contextlib.suppress(Exception):  # wait() raises it
            self.wait()
        return True

    def is_success(self) -> bool:
        """Whether the call has ended well."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """The error of a call that has ended, or None."""
        if self._error is None:
            self.is_completed()
        return self._error

    def result(self) -> list[torch.Tensor]:
        """The tensors that the call writes; waits for its end."""
        self.wait()
        return as_got(self.tensors)

    def synchronize(self) -> None:
        """As wait()."""
        self.wait()

    def get_future(self) -> torch.futures.Future[Any]:
        """A future that ends with the call; its value is a list of tensors, or it raises.

        torch's C++ takes an exception that is set for a value, but not one that a callback raises.
        """
        with self._lock:
            is_new = self._future is None
            if self._future is None:
                self._ended = torch.futures.Future()
                self._completed = threading.Event()
                self._future = self._ended.then(lambda _: self._take())
        if is_new and self.call.done():
            self._end()
        elif is_new:
            (self._group.futures.follow if self.in_order else follow_alone)(self._end)
        return self._future

    def _end(self) -> None:
        with contextlib.suppress(BaseException):  # _take() raises it
            self.wait()
        self._complete()

    def _complete(self) -> None:
        """Completes the future, once; returns when its callbacks have run, unless one calls it."""
        me = threading.get_ident()
        with self._lock:
            is_first = not self._completing
            if is_first:
                self._completing = me
        if is_first:
            try:
                with self._mode():
                    self._ended.set_result(None)
            finally:
                self._completed.set()
        elif self._completing != me:
            self._completed.wait()

    def _take(self) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return as_got(self.tensors)


def together(works: Sequence[Any], group: Caller) -> StartedWork:
    """The Work of several calls, which end together."""
    work = StartedWork(Together(works), [x for one in works for x in one.tensors], group)
    work.in_order = False
    return work


@break_graphs
class MessageWork(StartedWork):
    """A message that the communicator has started to send or receive; `source` is who sent it."""

    in_order = False
    source = -1

    def source_rank(self) -> int:
        """The rank that sent the message; waits for it."""
        self.wait()
        return self.source

    _source_rank = source_rank
