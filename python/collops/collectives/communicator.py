"""A group of ranks and its calls; the module of each call has its code and docstring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload
from weakref import WeakValueDictionary

from collops.collectives.collective_methods import CollectiveMethods
from collops.collectives.cuda_arrays import empty_of_communicator
from collops.collectives.level import PlainLevel, documented_by
from collops.collectives.message_calls import MessageCalls
from collops.collectives.plans import bad_argument, is_time
from collops.collectives.split import split
from collops.collectives.started import StartedCall, Starts
from collops.collectives.windows import window_array
from collops.core import act_in_words, core
from collops.errors import as_utf8, missing_attribute, status_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    import torch

    from collops.collectives.messages import RecvFrom, SendTo
    from collops.cuda_array import CudaArray
    from collops.tensor_types import Array, DType, SupportsDLPack, TensorT

# What other libraries call the same, where difflib does not find it.
_WORDS_OF_OTHERS = {
    "bcast": "broadcast",
    "free": "close",
    "gather": "gatherv",
    "get_rank": "rank",
    "get_size": "size",
    "irecv": 'start("recv", ...)',
    "isend": 'start("send", ...)',
    "rank_size": "size",
    "receive": "recv",
    "scatter": "scatterv",
    "timeout": "timeout_s",
    "world_size": "size",
}
_by_name: WeakValueDictionary[str, Communicator] = WeakValueDictionary()


def _unknown(name: str) -> AttributeError:
    return missing_attribute("a communicator", name, dir(Communicator), "comm", _WORDS_OF_OTHERS)


def communicator_named(name: str) -> Communicator | None:
    """The communicator of this process with a name, while something refers to it."""
    return _by_name.get(name)


class Communicator(CollectiveMethods):
    """A group of ranks, as collops.init() returns it.

    Only one thread at a time may make a call. Every call waits for all ranks, for at most the
    communicator's time-out. After an error other than a refusal the communicator refuses calls, and
    collops.init() makes a new one. A ``with`` statement closes it at the end of its block.

    Example:
        >>> import collops
        >>> from collops.testing import run_ranks
        >>> def who(rank):
        ...     with collops.init() as comm:
        ...         return comm.rank, comm.size
        >>> run_ranks(who, 2)
        [(0, 2), (1, 2)]
    """

    def __init__(self, core_communicator: Any = None, level: PlainLevel | None = None) -> None:
        if core_communicator is None:
            raise TypeError("Communicator: use collops.init(), which connects the ranks")
        self._core = core_communicator
        self._name = ""
        if level is None:
            level = PlainLevel(core_communicator)
            self._name = f"collops/{self.handle}"
            _by_name[self._name] = self
        super().__init__(level)
        self._is_closed = False
        self._starts: Starts | None = None
        self._messages = MessageCalls(level)

    if not TYPE_CHECKING:  # which would take every name for one that exists

        def __getattr__(self, name: str) -> NoReturn:
            raise _unknown(name)

        def __setattr__(self, name: str, value: Any) -> None:
            if not name.startswith("_") and not hasattr(type(self), name):
                raise _unknown(name)
            super().__setattr__(name, value)

    @property
    def rank(self) -> int:
        """This process's number, from 0 to size - 1."""
        return self._level.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._level.size

    @property
    def backend(self) -> str:
        """The backend that moves the data, such as ``"shm"``."""
        return str(self._core.backend)

    @property
    def handle(self) -> int:
        """The number that a struct's `hccl_comm` takes to use this communicator."""
        return int(self._core.handle)

    @property
    def timeout_s(self) -> float:
        """Seconds that a call waits for other ranks; a new value applies from the next call on."""
        return float(self._core.timeout_s)

    @timeout_s.setter
    def timeout_s(self, timeout_s: float) -> None:
        if not is_time(timeout_s):
            bad_argument(f"timeout_s must be a number of seconds above 0, got {timeout_s!r}")
        self._core.timeout_s = float(timeout_s)

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ", ended" if self._core.failed else ""
        return (
            f"<collops.Communicator rank {self.rank} of {self.size}, "
            f"domain {self._core.comm_domain!r}, backend {self._core.backend}{state}>"
        )

    @documented_by(MessageCalls.send)
    def send(self, x: TensorT | SupportsDLPack, to: int, tag: int = 0) -> None:
        self._messages.send(x, to, tag)

    @overload
    def recv(
        self,
        out: TensorT,
        from_: int | None = None,
        tag: int = 0,
        *,
        return_source: Literal[False] = False,
    ) -> TensorT: ...
    @overload
    def recv(
        self, out: TensorT, from_: int | None = None, tag: int = 0, *, return_source: Literal[True]
    ) -> tuple[TensorT, int]: ...
    @documented_by(MessageCalls.recv)
    def recv(
        self, out: Any, from_: int | None = None, tag: int = 0, *, return_source: bool = False
    ) -> Any:
        return self._messages.recv(out, from_, tag, return_source)

    @documented_by(MessageCalls.exchange)
    def exchange(self, messages: Sequence[SendTo | RecvFrom]) -> list[Any]:
        return self._messages.exchange(messages)

    def barrier(self) -> None:
        """Waits until every rank has called it.

        Raises:
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

        Example:
            >>> import collops
            >>> from collops.testing import run_ranks
            >>> run_ranks(lambda rank: collops.init().barrier(), 2)
            [None, None]
        """
        self._core.barrier()

    @documented_by(split)
    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        part = split(self._level, color, key)
        return None if part is None else Communicator(part)

    @documented_by(Starts)
    def start(self, name: str, *args: Any, **kwargs: Any) -> StartedCall:
        if self._starts is None:
            self._starts = Starts(self._core, self._calls_of)
        return self._starts(name, args, kwargs)

    def _calls_of(self, level: PlainLevel) -> Communicator:
        """The methods of the plain level, bound to `level`."""
        return Communicator(level.core, level)

    @overload
    def empty(self, shape: int | Sequence[int], dtype: DType) -> Array: ...
    @overload
    def empty(self, shape: int | Sequence[int], dtype: torch.dtype) -> torch.Tensor: ...
    @overload
    def empty(
        self, shape: int | Sequence[int], dtype: DType, device: str | int | None
    ) -> Array | CudaArray: ...
    @documented_by(window_array)
    def empty(self, shape: int | Sequence[int], dtype: Any, device: str | int | None = None) -> Any:
        if device not in (None, "cpu"):
            return empty_of_communicator(self._core, shape, dtype, device)
        window = core().window
        return window_array(lambda num_bytes: window(self._core, num_bytes), shape, dtype)

    def refuse(self, operation: str, error: Exception) -> None:
        """Sends an error of this rank to the others, in place of its part of a call.

        Args:
            operation: the call that the others wait in, such as ``"all_gatherv"``.
            error: what is wrong here; they get RankMismatchError with its message.
        """
        self._level.refuse(operation, error)

    def check(self) -> None:
        """Raises the error of an earlier call, such as one on a stream that failed when it ran.

        Waits for no other rank and for no device, so an error that happens later is not found.

        Raises:
            Error: the error that the next call would raise; it ends the group.

        Example:
            >>> import collops
            >>> from collops.testing import run_ranks
            >>> run_ranks(lambda rank: collops.init().check(), 2)
            [None, None]
        """
        self._core.check_calls()

    def abort(self, reason: str = "") -> None:
        """Ends every call of every rank with ERROR_ABORTED; may be called from any thread."""
        self._core.abort(as_utf8(reason) or act_in_words(f"rank {self.rank} called abort()"))

    def close(self) -> None:
        """Leaves the group; other ranks get PeerLostError when they next wait for this rank."""
        self._close(act_in_words(f"rank {self.rank} called close()"))

    def _close(self, reason: str) -> None:
        self._core.close(reason)
        self._is_closed = True

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, SystemExit):
            self.close()
        else:
            self._close(status_of(error)[1])
