"""StartedCall: a call of the plain level that comm.start() began."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from collops.collectives.calls import bad_argument, is_time
from collops.errors import missing_attribute, nearest

if TYPE_CHECKING:
    from collections.abc import Collection

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

    def __init__(self, name: str, handle: Any) -> None:
        self._name = name
        self._handle = handle

    if not TYPE_CHECKING:  # which would take every name for one that exists

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_attribute(
                "a started call", name, dir(StartedCall), "call", _WORDS_OF_OTHERS
            )

    def __repr__(self) -> str:
        return f"<collops.StartedCall {self._name}, {'done' if self.done() else 'under way'}>"

    def done(self) -> bool:
        """Whether the call has ended, with a result or an error; returns at once."""
        return bool(self._handle.done())

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
        return self._handle.wait(timeout_s or 0.0)


def refuse_name(name: Any, known: Collection[str]) -> NoReturn:
    """Raises ERROR_INVALID_PARAM for a name that start() does not know."""
    if not isinstance(name, str):
        method = getattr(name, "__name__", "all_reduce")
        bad_argument(
            f"start: the first argument must be the name of a call, such as {method!r}, got "
            f"{type(name).__name__}"
        )
    near = nearest(name, sorted(known))
    hint = f"did you mean {near!r}?" if near else f"pass one of {sorted(known)}"
    bad_argument(f"start: no call is named {name!r}; {hint}")
