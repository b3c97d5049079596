"""Messages between two ranks, and SendTo and RecvFrom, those of comm.exchange()."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, overload

from collops.collectives.calls import PlainCalls, of_communicator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.tensor_types import SupportsDLPack, TensorT


@dataclass(eq=False)
class SendTo:
    """A message of comm.exchange() that this rank sends.

    Args:
        x: [...] the tensor; as comm.send() takes it.
        to: the rank that receives, which may be this one.
        tag: from 0 to 2**31 - 1, the same as the receiver's.

    Source of the semantics: torch.distributed.P2POp with isend.

    Example:
        >>> import collops
        >>> collops.SendTo([1.5], to=3).tag
        0
    """

    x: Any
    to: int
    tag: int = 0


@dataclass(eq=False)
class RecvFrom:
    """A message of comm.exchange() that this rank receives.

    After the exchange `source` is the rank that sent the message.

    Args:
        out: [...] the memory for the tensor; as comm.recv() takes it.
        from_: the rank that sends, which may be this one; None: any rank.
        tag: from 0 to 2**31 - 1, the same as the sender's.

    Source of the semantics: torch.distributed.P2POp with irecv.

    Example:
        >>> import collops
        >>> collops.RecvFrom([0.0], tag=7).from_ is None
        True
    """

    out: Any
    from_: int | None = None
    tag: int = 0
    source: int | None = field(default=None, init=False)


@of_communicator
class Messages(PlainCalls):
    """send, recv and exchange. Not thread-safe.

    After first contact only the two ranks of a message take part. Messages of one pair are matched
    in order per tag, and never with collective calls.
    """

    def send(self, x: TensorT | SupportsDLPack, to: int, tag: int = 0) -> None:
        """Sends x to another rank, and returns when that rank has received it.

        ``out of rank `to` = x``

        Moves any element type of a fixed size, bit for bit. Two ranks that both send first wait for
        each other until the time-out, as with NCCL; exchange() avoids this. If x lies in memory of
        empty(), the receiver reads it in place.

        Args:
            x: [...] contiguous; any number of dims, also none. A numpy array, a torch tensor, or an
                object with ``__dlpack__`` in the CPU's memory.
            to: the rank that receives; this rank itself only if the call is started.
            tag: from 0 to 2**31 - 1, the same as the receiver's.

        Raises:
            ArgumentError: this rank's arguments are wrong; the receiver gets the message, unless
                `to` or `tag` is wrong.
            RankMismatchError: the receiver asks for another dtype or number of elements, and the
                communicator ends; or it refused, and the communicator stays usable.
            RankTimeoutError, PeerLostError, AbortedError: the receiver timed out, died or left.

        Source of the semantics: ncclSend; MPI_Ssend; torch.distributed.send.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def pass_on(rank):
            ...     with collops.init() as comm:
            ...         x = np.full(2, rank)
            ...         if rank == 0:
            ...             comm.send(x, 1)
            ...         elif rank == 1:
            ...             comm.recv(x, 0)
            ...         return x.tolist()
            >>> run_ranks(pass_on, 3)
            [[0, 0], [0, 0], [2, 2]]
        """
        return self._plain.send(x, to, tag)  # type: ignore[no-any-return]

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

    def recv(
        self, out: Any, from_: int | None = None, tag: int = 0, *, return_source: bool = False
    ) -> Any:
        """Receives a tensor of another rank into out.

        ``out = x of rank `from_` ``

        The sender's x has out's dtype and number of elements; shapes may differ.

        Args:
            out: [...] contiguous and writable; any number of dims, also none. A numpy array or a
                torch tensor in the CPU's memory.
            from_: the rank that sends; this rank itself only if the call is started; None: the
                oldest message that has arrived from any rank.
            tag: from 0 to 2**31 - 1, the same as the sender's.
            return_source: whether to return the sender's rank, too.

        Returns:
            `out`; with `return_source` the pair of `out` and the rank that sent.

        Raises:
            ArgumentError: this rank's arguments are wrong; the sender gets the message, unless
                `from_` or `tag` is wrong, or `from_` is None.
            RankMismatchError: the sender has another dtype or number of elements, and the
                communicator ends; or it refused, and the communicator stays usable.
            RankTimeoutError, PeerLostError, AbortedError: the sender timed out, died or left.

        Source of the semantics: ncclRecv; MPI_Recv; torch.distributed.recv.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def take(rank):
            ...     with collops.init() as comm:
            ...         if rank == 1:
            ...             comm.send(np.array([0.5]), 0, tag=3)
            ...         if rank > 0:
            ...             return None
            ...         out, source = comm.recv(np.empty(1), tag=3, return_source=True)
            ...         return out.tolist(), source
            >>> run_ranks(take, 3)[0]
            ([0.5], 1)
        """
        return self._plain.recv(out, from_, tag, return_source)

    def exchange(self, messages: Sequence[SendTo | RecvFrom]) -> list[Any]:
        """Runs several sends and receives at once, in any order.

        Messages of one pair and tag are matched in the order of the list. All end before it
        returns. A rank may send to itself here.

        Args:
            messages: collops.SendTo and collops.RecvFrom; may be empty. The `out` of each RecvFrom
                is memory that no other message of the list uses.

        Returns:
            The `out` of every RecvFrom, in the order of the list; their `source` is set.

        Raises:
            ArgumentError: a message is wrong, and none of them moves; the peers get the error.
            RankMismatchError: a peer disagrees, and the communicator ends; or a peer refused one
                message, the others are complete, and the communicator stays usable.
            RankTimeoutError, PeerLostError, AbortedError: a peer timed out, died or left.

        Source of the semantics: ncclGroupStart; torch.distributed.batch_isend_irecv.

        Example:
            >>> import collops, numpy as np
            >>> from collops import RecvFrom, SendTo
            >>> from collops.testing import run_ranks
            >>> def shift(rank):
            ...     with collops.init() as comm:
            ...         left, right = (rank - 1) % comm.size, (rank + 1) % comm.size
            ...         x, out = np.array([rank]), np.empty(1, int)
            ...         comm.exchange([SendTo(x, right), RecvFrom(out, left)])
            ...         return out.tolist()
            >>> run_ranks(shift, 3)
            [[2], [0], [1]]
        """
        return self._plain.exchange(messages)  # type: ignore[no-any-return]
