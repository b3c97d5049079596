"""Messages of the plain level: checks the arguments and calls the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.collectives.device_tensors import device_tensor
from collops.collectives.messages import RecvFrom, SendTo
from collops.collectives.plain_tensors import as_bytes, as_tensor, is_kind
from collops.collectives.plans import bad_argument, whole_number
from collops.errors import Error, status_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.collectives.level import PlainLevel

_ANY = -1
_TAG_MAX = 2**31 - 1
# Identify the calls among the ranks.
_OPERATIONS = {"send": "Send", "recv": "Recv", "exchange": "Exchange"}
# Whether it is sent, the peer, the tag.
_Address = tuple[bool, int, int]


class MessageCalls:
    """send, recv and exchange of one communicator. Not thread-safe.

    After first contact only the two ranks of a message take part. Messages of one pair are matched
    in order per tag, and never with collective calls.
    """

    def __init__(self, level: PlainLevel) -> None:
        self._level = level

    def send(self, x: Any, to: int, tag: int) -> None:
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
        self._other("send", "to", to)
        self._run("send", [self._address("send", SendTo(x, to, tag), "")], [("x", x)])

    def recv(self, out: Any, from_: int | None, tag: int, return_source: bool) -> Any:
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
        if from_ is not None:
            self._other("recv", "from_", from_)
        address = self._address("recv", RecvFrom(out, from_, tag), "")

        def received(sources: list[int]) -> Any:
            return (out, sources[0]) if return_source else out

        return self._level.result(self._run("recv", [address], [("out", out)]), received)

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
        if not isinstance(messages, (list, tuple)):
            bad_argument(f"exchange: messages must be a list, got {type(messages).__name__}")
        messages = list(messages)  # later changes of the list have no effect
        addresses: list[_Address] = []
        tensors: list[tuple[str, Any]] = []
        problem: Error | None = None
        for number, message in enumerate(messages):
            try:
                addresses.append(self._address("exchange", message, f"messages[{number}]."))
                name = "x" if isinstance(message, SendTo) else "out"
                tensors.append((f"messages[{number}].{name}", getattr(message, name)))
            except Error as error:
                problem = problem or error
        if problem is not None:
            self._refuse("exchange", addresses, problem)
            raise problem

        def received(sources: list[int]) -> list[Any]:
            outs = []
            for message, source in zip(messages, sources, strict=True):
                if isinstance(message, RecvFrom):
                    message.source = source
                    outs.append(message.out)
            return outs

        return self._level.result(  # type: ignore[no-any-return]
            self._run("exchange", addresses, tensors), received
        )

    def _run(
        self, name: str, addresses: list[_Address], tensors: list[tuple[str, Any]]
    ) -> list[int]:
        try:
            items = [
                (*address, *self._data(name, *tensor, sends=address[0]))
                for address, tensor in zip(addresses, tensors, strict=True)
            ]
        except Exception as error:
            self._refuse(name, addresses, error)
            raise
        return self._level.core.messages(_OPERATIONS[name], items)  # type: ignore[no-any-return]

    def _data(self, name: str, label: str, value: Any, *, sends: bool) -> tuple[Any, str, str, int]:
        if sends:
            value = as_tensor(name, label, value)
        elif not is_kind(value):
            on_gpu = device_tensor(name, label, value)
            if on_gpu is None:
                bad_argument(
                    f"{name}: {label} must be a numpy array or a torch tensor, "
                    f"got {type(value).__name__}"
                )
            value = on_gpu
        element = self._level.element(value.dtype)
        if element.number is None:
            value = as_bytes(f"{name}: {label}", value)
        return value, label, element.name, element.unit

    def _address(self, name: str, message: Any, where: str) -> _Address:
        if isinstance(message, SendTo):
            return True, self._rank(name, f"{where}to", message.to), _tag(name, where, message.tag)
        if not isinstance(message, RecvFrom):
            bad_argument(
                f"{name}: {where.rstrip('.')} must be a collops.SendTo or a collops.RecvFrom, "
                f"got {type(message).__name__}"
            )
        peer = _ANY if message.from_ is None else self._rank(name, f"{where}from_", message.from_)
        return False, peer, _tag(name, where, message.tag)

    def _rank(self, name: str, label: str, value: Any) -> int:
        number = whole_number(name, label, value)
        if not 0 <= number < self._level.size:
            bad_argument(f"{name}: {label} must be in [0, {self._level.size}), got {number}")
        return number

    def _other(self, name: str, label: str, value: Any) -> None:
        if self._rank(name, label, value) == self._level.rank and self._level.waits:
            bad_argument(
                f"{name}: {label} is this rank itself, {value}: pass another rank, or begin both "
                "sides with exchange() or start()"
            )

    def _refuse(self, name: str, addresses: list[_Address], error: Exception) -> None:
        """Sends the error to the peers of the messages."""
        try:
            self._level.core.refuse_messages(_OPERATIONS[name], addresses, *status_of(error))
        except Error:
            return  # the communicator has ended; the caller raises the first error


def _tag(name: str, where: str, value: Any) -> int:
    tag = whole_number(name, f"{where}tag", value)
    if not 0 <= tag <= _TAG_MAX:
        bad_argument(f"{name}: {where}tag must be from 0 to {_TAG_MAX}, got {tag}")
    return tag
