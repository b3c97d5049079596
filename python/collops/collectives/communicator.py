"""A group of ranks and its calls."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NoReturn, overload
from weakref import WeakSet, WeakValueDictionary

from collops.collectives.calls import bad_argument, is_time, of_communicator
from collops.collectives.cuda_arrays import empty_of_communicator
from collops.collectives.exchanged_products import ExchangedProducts
from collops.collectives.gathers import Gathers
from collops.collectives.grouped_products import GroupedProducts
from collops.collectives.messages import Messages
from collops.collectives.moe import Experts
from collops.collectives.products import Products
from collops.collectives.reductions import Reductions
from collops.collectives.started import StartedCall, refuse_name
from collops.collectives.windows import window_array
from collops.core import act_in_words, core
from collops.errors import add_keyword_hint, as_utf8, missing_attribute, status_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    import torch

    from collops.cuda_array import CudaArray
    from collops.tensor_types import Array, DType

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


@of_communicator
class GroupCalls(
    Gathers, Reductions, Products, GroupedProducts, ExchangedProducts, Experts, Messages
):
    """Every call that waits for other ranks; each of them can be started."""

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
        return self._plain.barrier()  # type: ignore[no-any-return]

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Makes a communicator of the ranks that gave the same color; every rank calls it.

        ``part = the ranks with my color, numbered by key and then by their rank here``

        The new communicators are independent of this one and of each other, and can be split again.
        Closing one leaves the others open. Structs take its `handle` as `hccl_comm`.

        Args:
            color: the subgroup that this rank joins, at least 0; None or a negative number: none.
            key: order within the subgroup; equal keys keep the order of ranks.

        Returns:
            The communicator of this rank's subgroup, after first contact; None if it joins none.

        Raises:
            ArgumentError: color or key is not a whole number; the other ranks get its message.
            RankMismatchError: another rank refused, or made another call.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

        Source of the semantics: MPI_Comm_split.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def work(rank):
            ...     with collops.init() as comm, comm.split(color=rank % 2) as part:
            ...         return part.rank, part.all_gatherv(np.array([rank])).tolist()
            >>> run_ranks(work, 3)
            [(0, [0, 2]), (0, [1]), (1, [0, 2])]
        """
        return self._plain.split(color, key)  # type: ignore[no-any-return]


class MadeHere(threading.local):
    """The communicators that this thread has made, if it is a rank of its own; else None.

    They end with the rank, so that no other one waits for it.
    """

    communicators: WeakSet[Communicator] | None = None


made_here = MadeHere()

_STARTED = frozenset(name for name in dir(GroupCalls) if not name.startswith("_"))


class Communicator(GroupCalls):
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

    def __init__(self, core_communicator: Any = None) -> None:
        if core_communicator is None:
            raise TypeError("Communicator: use collops.init(), which connects the ranks")
        super().__init__(core().PlainLevel(core_communicator, Communicator))
        self._core = core_communicator
        self._rank, self._size = int(core_communicator.rank), int(core_communicator.size)
        self._is_closed = False
        self._starting: GroupCalls | None = None
        self._start_lock = threading.Lock()
        self._name = f"collops/{self.handle}"
        _by_name[self._name] = self
        if made_here.communicators is not None:
            made_here.communicators.add(self)

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
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._size

    @property
    def old_ranks(self) -> tuple[int, ...]:
        """The ranks' numbers in the communicator that shrink() made this one of; else ``()``."""
        return tuple(self._core.old_ranks)

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

    def start(self, name: str, *args: Any, **kwargs: Any) -> StartedCall:
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
        if not isinstance(name, str) or name not in _STARTED:
            refuse_name(name, _STARTED)
        if not self._start_lock.acquire(blocking=False):
            bad_argument(f"{name}: another thread is starting a call; one thread at a time")
        try:
            if self._starting is None:
                self._starting = GroupCalls(self._plain.starting())
            return StartedCall(name, getattr(self._starting, name)(*args, **kwargs))
        except TypeError as error:
            add_keyword_hint(error, getattr(self, name), kwargs)
            raise
        finally:
            self._start_lock.release()

    @overload
    def empty(self, shape: int | Sequence[int], dtype: DType) -> Array: ...
    @overload
    def empty(self, shape: int | Sequence[int], dtype: torch.dtype) -> torch.Tensor: ...
    @overload
    def empty(
        self, shape: int | Sequence[int], dtype: DType, device: str | int | None
    ) -> Array | CudaArray: ...
    def empty(self, shape: int | Sequence[int], dtype: Any, device: str | int | None = None) -> Any:
        """Allocates memory that the other ranks read in place, so a call copies each byte once.

        A forked child process shares this memory: this rank and its peers see what the child
        writes, so the child must copy the array before it changes elements.

        With ranks on several hosts (backend ucx) it is memory of this rank alone, like any array.

        Args:
            shape: sizes of the dimensions.
            dtype: element type, or its name (``"float32"``, ``"f32"``, ``"bf16"``); a torch dtype
                makes a torch tensor, any other a numpy array.
            device: ``"cuda"`` makes a CudaArray (for a torch dtype a CUDA tensor) on the GPU of the
                communicator, or, before its first call, on the thread's current GPU; None: the CPU.

        Returns:
            An uninitialised array, valid while something refers to it, also after close().

        Raises:
            Error: there is not enough memory, or the backend has no windows.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def gather(rank):
            ...     comm = collops.init()
            ...     x = comm.empty((2, 3), np.float32)
            ...     x[:] = rank
            ...     return comm.all_gatherv(x).sum()
            >>> float(run_ranks(gather, 2)[0])
            6.0
        """
        if device not in (None, "cpu"):
            return empty_of_communicator(self._core, shape, dtype, device)
        window = core().window
        return window_array(lambda num_bytes: window(self._core, num_bytes), shape, dtype)

    def shrink(
        self, exclude: Sequence[int] | None = None, timeout_s: float | None = None
    ) -> Communicator:
        """Makes a communicator of the ranks that are left after a loss, in their old order.

        ``new.rank = the place of my old rank in new.old_ranks, which is ascending``

        Every rank that is left calls it, with the same `exclude`; one that is in no call too. It
        ends this communicator, if that has not failed yet, and with it the started calls. The new
        one has the same domain, new shared memory and no subgroups. If ranks end meanwhile, all
        that are left get the same, smaller group. What a call that failed has left in its outputs
        is undefined; its inputs are as they were.

        Args:
            exclude: ranks to leave out, although they may live; they learn it as an error of their
                next call. None: none.
            timeout_s: seconds to wait for each rank that lives. One that has not called it then,
                such as a stopped one, is left out, and gets an error when it goes on. None: the
                communicator's.

        Returns:
            The new communicator, after first contact. A single rank may be left.

        Raises:
            ArgumentError: `exclude` has this rank, a number out of range, or one twice;
                `timeout_s` is not above 0; or the communicator was closed.
            RankMismatchError: the ranks exclude different ones; there is no new group then.
            RankTimeoutError: the others have gone on without this rank, which came too late; or, on
                several hosts, more ranks are silent than have come.
            AbortedError: another rank has excluded this one.
            UnsupportedError: a subgroup on several hosts, or a backend that cannot do it.

        Source of the semantics: MPIX_Comm_shrink of MPI's ULFM, ncclCommShrink of NCCL.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def go_on_without_rank_1(rank):
            ...     comm = collops.init()
            ...     if rank == 1:
            ...         comm.close()
            ...         return None
            ...     try:
            ...         comm.barrier()
            ...     except collops.PeerLostError:
            ...         comm = comm.shrink()
            ...     return comm.old_ranks, comm.all_gatherv(np.array([rank])).tolist()
            >>> run_ranks(go_on_without_rank_1, 3)
            [((0, 2), [0, 2]), None, ((0, 2), [0, 2])]
        """
        if timeout_s is not None and not is_time(timeout_s):
            bad_argument(
                f"shrink: timeout_s must be a number of seconds above 0, got {timeout_s!r}"
            )
        return self._plain.shrink(exclude, timeout_s or 0.0)  # type: ignore[no-any-return]

    def grow(self, n: int, timeout_s: float | None = None) -> Communicator:
        """Makes a communicator with n more ranks, which are new processes.

        ``new.rank = my old rank;  new.size = size + n``

        Every rank calls it, with the same n. Each new process calls ``collops.init(join=DOMAIN)``
        with this communicator's comm_domain in the same job (COLLOPS_JOB_ID, or its launcher's) and
        as the same user; of a group on several hosts, on any host, with the same COLLOPS_JOB_KEY
        and MASTER_ADDR. They are numbered in the order in which they come. This
        communicator ends when the new one is there, which has the same domain, new shared memory,
        no started calls and no subgroups, and whose `old_ranks` is ``()``.

        Args:
            n: how many processes join, at least 1.
            timeout_s: seconds to wait for them once every rank has called; of different numbers the
                least counts. None: the communicator's.

        Returns:
            The new communicator, after first contact.

        Raises:
            RankTimeoutError: fewer than n processes came; this communicator is as it was. Or a rank
                of this communicator did not call it in time, or was stopped in it: then it has
                ended, as after every such call.
            RankMismatchError: the ranks have different n; this communicator is as it was.
            ArgumentError: n or `timeout_s` is wrong; the other ranks get the message of a wrong n.
            PeerLostError, AbortedError: a rank died or aborted, so this communicator has ended, and
                shrink() makes one of those that are left. A new process that dies does not end it.
            UnsupportedError: the backend is hccl, or this is a part of a group on several hosts:
                grow the whole group, and split it anew.

        Source of the semantics: MPI_Comm_accept and MPI_Intercomm_merge; ncclCommGrow of NCCL.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def two_and_a_new_one(process):
            ...     if process == 2:
            ...         comm = collops.init(join="dp")
            ...     else:
            ...         comm = collops.init(process, 2, comm_domain="dp").grow(1)
            ...     return comm.rank, comm.all_gatherv(np.array([comm.rank])).tolist()
            >>> run_ranks(two_and_a_new_one, 3)
            [(0, [0, 1, 2]), (1, [0, 1, 2]), (2, [0, 1, 2])]
        """
        if timeout_s is not None and not is_time(timeout_s):
            bad_argument(f"grow: timeout_s must be a number of seconds above 0, got {timeout_s!r}")
        return self._plain.grow(n, timeout_s or 0.0)  # type: ignore[no-any-return]

    def refuse(self, operation: str, error: Exception) -> None:
        """Sends an error of this rank to the others, in place of its part of a call.

        Args:
            operation: the call that the others wait in, such as ``"all_gatherv"``.
            error: what is wrong here; they get RankMismatchError with its message.
        """
        self._plain.refuse(operation, *status_of(error))

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

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a communicator belongs to its process and cannot be copied or pickled: call "
            "collops.init() in each rank"
        )

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
