"""Calls of the plain level that are started now and waited for later."""

from __future__ import annotations

import contextlib
import difflib
import math
import numbers
import threading
from typing import TYPE_CHECKING, Any

from collops.collectives.level import PlainLevel
from collops.collectives.plans import bad_argument
from collops.core import core
from collops.errors import Error, ErrorCode, status_error
from collops.tensors import torch_mode

if TYPE_CHECKING:
    from collections.abc import Callable

# What the calls make of numbers that the other ranks tell, or of operations with plans of their
# own, they make in their turn.
_IN_TURN = (
    "all_gather_matmul",
    "all_gather_matmul_reduce_scatter",
    "matmul_all_reduce",
    "matmul_reduce_scatter",
    "split",
)
_AT_ONCE = (
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
)


class StartedCall:
    """A call that comm.start() began.

    Its tensors stay as they are until wait() returns or done() is true. It may be waited for by any
    thread, as often as one likes. Where `out` is filled by a copy (dim is not 0, or `out` is not
    contiguous), wait() and done() make it.

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
        self._lock = threading.Lock()  # of what follows: two threads may wait
        self._value: Any = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<collops.StartedCall {self._name}, {'done' if self.done() else 'under way'}>"

    def done(self) -> bool:
        """Whether the call has ended, well or not; waits for no one."""
        if not self._handle.done():
            return False
        with contextlib.suppress(Exception):  # it is the waiter's
            self._settle(0.0)
        return True

    def wait(self, timeout_s: float | None = None) -> Any:
        """Waits for the end of the call and returns what it would have returned.

        Args:
            timeout_s: ends the communicator with RankTimeoutError where that is less than its own
                time-out. It counts from when the call begins, that is, when those before it have
                ended; for messages, from here.

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
        if timeout_s is not None and not _is_time(timeout_s):
            bad_argument(f"wait: timeout_s must be a number above 0, got {timeout_s!r}")
        return self._settle(timeout_s or 0.0)

    def _settle(self, timeout_s: float) -> Any:
        """Waits, and then makes the result, once."""
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
    """start() of one communicator: one thread at a time, as the communicator.

    `make_calls` makes the plain level's methods of a level.
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

        Calls of the group run in the order of their starts, which is the same on every rank; a call
        that is not started runs after those that were. Messages (send, recv, exchange) go on beside
        them. The first start() adds a thread to this communicator, which makes the calls that
        nobody waits for; close() ends it. Python runs in it only for calls that make something of
        what the other ranks tell them: those without sizes, scatterv, products, and split.

        Args:
            name: of a method that waits for other ranks: ``"all_gatherv"``, ``"recv"``, ...
            args, kwargs: as the method takes them. Tensors must not be changed, and `out` not be
                read, until the call has ended. They are kept until then.

        Returns:
            The call. The communicator's time-out counts from when those before it have ended.

        Raises:
            ArgumentError: there is no such call; or its arguments are wrong, and the other ranks
                are told in its place. What can be checked in its turn alone is raised by wait().
            AbortedError and others: the communicator has ended. A failure ends all that were
                started and have not ended.

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
        if not self._lock.acquire(blocking=False):
            bad_argument(f"{name}: another thread starts a call; one thread at a time")
        try:
            return self._start(name, args, kwargs)
        finally:
            self._lock.release()

    def _start(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StartedCall:
        if name not in _AT_ONCE and name not in _IN_TURN:
            close = difflib.get_close_matches(str(name), [*_AT_ONCE, *_IN_TURN], 1)
            hint = (
                f"did you mean {close[0]!r}?"
                if close
                else f"pass one of {sorted([*_AT_ONCE, *_IN_TURN])}"
            )
            bad_argument(f"start: no call is named {name!r}; {hint}")
        if name in _IN_TURN:
            return self._start_in_turn(name, args, kwargs)
        self._level.begin()
        try:
            value = getattr(self._at_once, name)(*args, **kwargs)
        except _AsksOthersError:
            return self._start_in_turn(name, args, kwargs)
        except BaseException:
            # The refusal takes the call's place. If all has ended, the first error says more.
            with contextlib.suppress(Error):
                self._starter.commit()
            raise
        return StartedCall(name, self._starter.commit(), self._level.take(value))

    def _start_in_turn(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> StartedCall:
        outcome = _Outcome(getattr(self._in_turn, name), args, kwargs)
        once = [outcome]  # so that the queue, which the error's frames know, does not hold it
        self._starter.add(name, lambda: once.pop().run())
        return StartedCall(name, self._starter.commit(), outcome.take)


def _is_time(value: Any) -> bool:
    try:
        return isinstance(value, numbers.Real) and 0 < float(value) < math.inf
    except OverflowError:
        return False


class _AsksOthersError(Exception):
    """The call needs numbers of the other ranks before it knows its own."""


class _StartingCore:
    """A core whose calls are started; those that bring numbers cannot be."""

    def __init__(self, starter: Any) -> None:
        self._starter = starter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._starter, name)

    def exchange_rows(self, *_: Any) -> Any:
        raise _AsksOthersError

    share_from_root = exchange_rows


class _StartingLevel(PlainLevel):
    """What the methods share when their calls are started: the rest comes after the wait."""

    def __init__(self, starter: Any) -> None:
        super().__init__(_StartingCore(starter))
        self.begin()

    def begin(self) -> None:
        """Forgets the call before."""
        self._work: list[Callable[[], None]] = []
        self._make: Callable[[list[int]], Any] | None = None

    def afterwards(self, work: Callable[[], None]) -> None:
        self._work.append(work)

    def result(self, sources: list[int], make: Callable[[list[int]], Any]) -> Any:
        self._make = make

    def take(self, value: Any) -> Callable[[list[int]], Any]:
        """What makes the call's result, once it has ended."""
        work, make, mode = self._work, self._make, torch_mode()
        self.begin()

        def finish(sources: list[int]) -> Any:
            with mode():  # as at the start, whoever waits
                for piece in work:
                    piece()
            return value if make is None else make(sources)

        return finish


class _Outcome:
    """A method that runs in its turn, in whatever thread, and what comes of it."""

    def __init__(
        self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        # Lists are as they were at the start.
        args = tuple([list(value) if type(value) is list else value for value in args])
        self._call: tuple[Any, ...] | None = (method, args, kwargs)
        self._mode = torch_mode()
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Keeps the error, which is the waiter's; an interrupt is also that of who runs this."""
        assert self._call is not None
        (method, args, kwargs), self._call = self._call, None
        try:
            with self._mode():  # as at the start, in whatever thread this is
                self._value = method(*args, **kwargs)
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                self._error = status_error(
                    ErrorCode.ERROR_ABORTED, f"{method.__name__} was interrupted"
                )
                raise

    def take(self, _: list[int]) -> Any:
        """The value, or the error raised."""
        if self._error is not None:
            raise self._error
        return self._value
