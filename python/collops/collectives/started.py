"""Asynchronous calls of the plain level: comm.start() and StartedCall."""

from __future__ import annotations

import contextlib
import difflib
import threading
from typing import TYPE_CHECKING, Any, NoReturn

from collops.collectives.level import PlainLevel
from collops.collectives.plans import bad_argument, is_time
from collops.core import core
from collops.errors import Error, ErrorCode, add_keyword_hint, missing_attribute, status_error
from collops.tensors import torch_mode

if TYPE_CHECKING:
    from collections.abc import Callable

# Calls that need numbers of the other ranks, or have an Operation with plans of its own: they run
# as a whole when the queue reaches them.
_IN_TURN = {
    "all_gather_matmul",
    "all_gather_matmul_reduce_scatter",
    "matmul_all_reduce",
    "matmul_reduce_scatter",
    "split",
}
_AT_ONCE = {
    "all_gather",
    "all_gatherv",
    "all_reduce",
    "all_to_allv",
    "barrier",
    "broadcast",
    "exchange",
    "gatherv",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatterv",
    "scatterv",
    "send",
}

# What torch, MPI and concurrent.futures call the same.
_WORDS_OF_OTHERS = {"is_completed": "done", "result": "wait", "test": "done"}


class StartedCall:
    """A call that comm.start() began.

    Do not change its tensors until wait() returns or done() is true. Any thread may wait for it,
    any number of times. If `out` is filled by a copy (dim is not 0, or `out` is not contiguous),
    wait() or done() makes the copy.

    Example:
        >>> import collops, numpy as np
        >>> from collops.testing import run_ranks
        >>> def add(rank):
        ...     with collops.init() as comm:
        ...         call = comm.start("all_reduce", np.full(2, rank))
        ...         return call.wait().tolist(), call.done()
        >>> run_ranks(add, 3)[0]
        ([3, 3], True)
    """

    def __init__(self, name: str, handle: Any, finish: Callable[[list[int]], Any]) -> None:
        self._name = name
        self._handle = handle
        self._finish: Callable[[list[int]], Any] | None = finish
        self._lock = threading.Lock()  # guards the members below: two threads may wait
        self._value: Any = None
        self._error: BaseException | None = None

    if not TYPE_CHECKING:  # which would take every name for one that exists

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_attribute(
                "a started call", name, dir(StartedCall), "call", _WORDS_OF_OTHERS
            )

    def __repr__(self) -> str:
        return f"<collops.StartedCall {self._name}, {'done' if self.done() else 'under way'}>"

    def done(self) -> bool:
        """Whether the call has ended, with a result or an error; returns at once."""
        if not self._handle.done():
            return False
        with contextlib.suppress(Exception):  # wait() raises it
            self._settle(0.0)
        return True

    def wait(self, timeout_s: float | None = None) -> Any:
        """Waits for the end of the call and returns what it would have returned.

        Args:
            timeout_s: after this time the communicator ends with RankTimeoutError, if that is less
                than its own time-out. The time of a collective call counts from its beginning,
                when the calls before it have ended; that of a message counts from this wait().

        Raises:
            ArgumentError: timeout_s is not a positive number.
            RankMismatchError, RankTimeoutError, PeerLostError, AbortedError: as the call itself.

        Source of the semantics: torch.distributed.Work.wait.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def gather(rank):
            ...     with collops.init() as comm:
            ...         return comm.start("all_gatherv", np.full(rank, rank)).wait(60).tolist()
            >>> run_ranks(gather, 3)[0]
            [1, 2, 2]
        """
        if timeout_s is not None and not is_time(timeout_s):
            bad_argument(f"wait: timeout_s must be a number above 0, got {timeout_s!r}")
        return self._settle(timeout_s or 0.0)

    def _settle(self, timeout_s: float) -> Any:
        """Waits; the first thread to return makes the result."""
        sources = self._handle.wait(timeout_s)
        with self._lock:
            finish, self._finish = self._finish, None
            if finish is not None:
                try:
                    self._value = finish(sources)
                except BaseException as error:
                    self._error = error
            if self._error is not None:
                raise self._error
            return self._value


class Starts:
    """start() of one communicator. Not thread-safe.

    `make_calls` returns the plain level's methods, bound to a level.
    """

    def __init__(self, communicator: Any, make_calls: Callable[[PlainLevel], Any]) -> None:
        self._starter = core().Starter(communicator)
        self._level = _StartingLevel(self._starter)
        self._at_once = make_calls(self._level)
        self._in_turn = make_calls(PlainLevel(communicator))
        self._lock = threading.Lock()

    def __call__(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StartedCall:
        """Starts a call and returns at once; its wait() gives what the call returns.

        ``comm.start("all_gatherv", x, sizes).wait() = comm.all_gatherv(x, sizes)``

        Collective calls run in the order in which they were started, the same on every rank; a call
        that is not started runs after those. Messages (send, recv, exchange) do not wait for
        collective calls. The first start() adds a thread to this communicator, which runs calls
        that no thread waits for; close() ends it. It runs Python only for calls that need numbers
        of the other ranks (those without sizes, scatterv, split), and for products.

        Args:
            name: a method that waits for other ranks: ``"all_gatherv"``, ``"recv"``, ...
            *args: the method's arguments. Tensors must not be changed, and `out` not be read,
                until the call has ended. The call holds references to them until then.
            **kwargs: the method's keyword arguments, likewise.

        Returns:
            The call. Its time-out counts from when the calls before it have ended.

        Raises:
            ArgumentError: there is no such call; or its arguments are wrong, and the other ranks
                get the error in place of the call. wait() raises the errors of checks that run
                when the call begins.
            AbortedError and others: the communicator has ended. A failure ends all started calls
                that have not ended.

        Source of the semantics: torch.distributed with async_op=True; MPI_Iallgatherv.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def overlap(rank):
            ...     with collops.init() as comm:
            ...         gathered = comm.start("all_gatherv", np.full(rank + 1, rank), [1, 2])
            ...         total = comm.start("all_reduce", np.array([rank + 0.5]))
            ...         return gathered.wait().tolist(), total.wait().tolist()
            >>> run_ranks(overlap, 2)
            [([0, 1, 1], [2.0]), ([0, 1, 1], [2.0])]
        """
        if not isinstance(name, str):
            _refuse_name(name)
        if not self._lock.acquire(blocking=False):
            bad_argument(f"{name}: another thread is starting a call; one thread at a time")
        try:
            return self._start(name, args, kwargs)
        finally:
            self._lock.release()

    def _start(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StartedCall:
        if name not in _AT_ONCE:
            if name not in _IN_TURN:
                _refuse_name(name)
            return self._start_in_turn(name, args, kwargs)
        self._level.begin()
        method = getattr(self._at_once, name)
        try:
            value = method(*args, **kwargs)
        except _AsksOthersError:
            return self._start_in_turn(name, args, kwargs)
        except BaseException as error:
            # Queues the refusal. If the communicator has ended, the first error is raised.
            with contextlib.suppress(Error):
                self._starter.commit()
            add_keyword_hint(error, method, kwargs)
            raise
        return StartedCall(name, self._starter.commit(), self._level.take(value))

    def _start_in_turn(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> StartedCall:
        outcome = _Outcome(getattr(self._in_turn, name), args, kwargs)
        # A list, so that the queue, to which the error's frames refer, does not hold the outcome.
        once = [outcome]
        self._starter.add(name, lambda: once.pop().run())
        return StartedCall(name, self._starter.commit(), outcome.take)


def _refuse_name(name: Any) -> NoReturn:
    if not isinstance(name, str):
        method = getattr(name, "__name__", "all_reduce")
        bad_argument(
            f"start: the first argument must be the name of a call, such as {method!r}, got "
            f"{type(name).__name__}"
        )
    close = difflib.get_close_matches(name, sorted(_AT_ONCE | _IN_TURN), 1)
    hint = (
        f"did you mean {close[0]!r}?" if close else f"pass one of {sorted([*_AT_ONCE, *_IN_TURN])}"
    )
    bad_argument(f"start: no call is named {name!r}; {hint}")


class _AsksOthersError(Exception):
    """The call needs numbers of the other ranks before it can be planned."""


class _StartingCore:
    """The core's communicator with started calls; calls that return numbers of ranks raise."""

    def __init__(self, starter: Any) -> None:
        self._starter = starter
        self.run = starter.run  # of nearly every call: found at once

    def __getattr__(self, name: str) -> Any:
        return getattr(self._starter, name)

    def exchange_rows(self, *_: Any) -> Any:
        raise _AsksOthersError

    share_from_root = exchange_rows


class _NeverRepeated:
    """In the place of the core's RepeatedCall: a started call is prepared every time."""

    @staticmethod
    def run(*_: Any) -> None:
        """Finds no call."""

    @staticmethod
    def keep(*_: Any) -> None:
        """Keeps no call."""


class _StartingLevel(PlainLevel):
    """The plain level whose calls are started; the work after a call runs in wait()."""

    waits = False

    def __init__(self, starter: Any) -> None:
        super().__init__(_StartingCore(starter))
        self.begin()

    def repeated(self) -> Any:
        return _NeverRepeated

    def begin(self) -> None:
        """Clears the work of the call before."""
        self._work: list[Callable[[], None]] = []
        self._make: Callable[[list[int]], Any] | None = None

    def afterwards(self, work: Callable[[], None]) -> None:
        self._work.append(work)

    def result(self, sources: list[int], make: Callable[[list[int]], Any]) -> Any:
        self._make = make

    def take(self, value: Any) -> Callable[[list[int]], Any]:
        """The function that makes the call's result once the call has ended."""
        work, make = self._work, self._make
        if not work and make is None:
            return lambda _: value
        mode = torch_mode()
        self.begin()

        def finish(sources: list[int]) -> Any:
            with mode():  # torch's gradient mode at the start, whichever thread waits
                for piece in work:
                    piece()
            return value if make is None else make(sources)

        return finish


class _Outcome:
    """A method that runs as a whole when the queue reaches it, in any thread, and its result."""

    def __init__(
        self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        # Later changes of lists have no effect.
        args = tuple([list(value) if type(value) is list else value for value in args])
        self._call: tuple[Any, ...] | None = (method, args, kwargs)
        self._mode = torch_mode()
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Runs the method; take() raises its error. An interrupt is raised here, too."""
        assert self._call is not None
        (method, args, kwargs), self._call = self._call, None
        try:
            with self._mode():  # torch's gradient mode at the start
                self._value = method(*args, **kwargs)
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                self._error = status_error(
                    ErrorCode.ERROR_ABORTED, f"{method.__name__} was interrupted"
                )
                raise

    def take(self, _: list[int]) -> Any:
        """Returns the method's result, or raises its error."""
        if self._error is not None:
            raise self._error
        return self._value
