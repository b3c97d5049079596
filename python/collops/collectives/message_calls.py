"""Messages of the plain level: from a user's call to a call of the core."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from collops.collectives.messages import RecvFrom, SendTo
from collops.collectives.plain_tensors import as_bytes, as_tensor
from collops.collectives.plans import bad_argument
from collops.errors import Error, status_of
from collops.tensors import is_torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.collectives.level import PlainLevel

_ANY = -1
_TAG_MAX = 2**31 - 1
# By which the ranks know the calls.
_OPERATIONS = {"send": "Send", "recv": "Recv", "exchange": "Exchange"}
# Whether it is sent, the peer, the tag.
_Address = tuple[bool, int, int]


class MessageCalls:
    """send, recv and exchange of one communicator. One thread at a time, as the communicator."""

    def __init__(self, level: PlainLevel) -> None:
        self._level = level

    def send(self, x: Any, to: int, tag: int) -> None:
        """Sends one message."""
        self._other("send", "to", to)
        self._run("send", [self._address("send", SendTo(x, to, tag), "")], [("x", x)])

    def recv(self, out: Any, from_: int | None, tag: int, return_source: bool) -> Any:
        """Receives one message; returns `out`, and perhaps whose it was."""
        if from_ is not None:
            self._other("recv", "from_", from_)
        address = self._address("recv", RecvFrom(out, from_, tag), "")

        def received(sources: list[int]) -> Any:
            return (out, sources[0]) if return_source else out

        return self._level.result(self._run("recv", [address], [("out", out)]), received)

    def exchange(self, messages: Sequence[SendTo | RecvFrom]) -> list[Any]:
        """Runs all messages; returns what was received."""
        if not isinstance(messages, (list, tuple)):
            bad_argument(f"exchange: messages must be a list, got a {type(messages).__name__}")
        messages = list(messages)  # as they are now, also where the call is started
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
        return self._level.core.messages(_OPERATIONS[name], name, items)  # type: ignore[no-any-return]

    def _data(self, name: str, label: str, value: Any, *, sends: bool) -> tuple[Any, str, str, int]:
        if sends:
            value = as_tensor(name, label, value)
        elif not isinstance(value, np.ndarray) and not is_torch(value):
            bad_argument(
                f"{name}: {label} must be a numpy array or a torch tensor, "
                f"got a {type(value).__name__}"
            )
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
                f"got a {type(message).__name__}"
            )
        peer = _ANY if message.from_ is None else self._rank(name, f"{where}from_", message.from_)
        return False, peer, _tag(name, where, message.tag)

    def _rank(self, name: str, label: str, value: Any) -> int:
        number = _whole(name, label, value)
        if not 0 <= number < self._level.size:
            bad_argument(f"{name}: {label} must be in [0, {self._level.size}), got {number}")
        return number

    def _other(self, name: str, label: str, value: Any) -> None:
        if self._rank(name, label, value) == self._level.rank:
            bad_argument(
                f"{name}: {label} is this rank itself, {value}: name another one, or use exchange"
            )

    def _refuse(self, name: str, addresses: list[_Address], error: Exception) -> None:
        """Tells the peers why this rank does not take part."""
        try:
            self._level.core.refuse_messages(_OPERATIONS[name], addresses, *status_of(error))
        except Error:
            return  # the communicator is gone; the first error says more


def _whole(name: str, label: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        bad_argument(f"{name}: {label} must be a whole number, got {value!r}")


def _tag(name: str, where: str, value: Any) -> int:
    tag = _whole(name, f"{where}tag", value)
    if not 0 <= tag <= _TAG_MAX:
        bad_argument(f"{name}: {where}tag must be from 0 to {_TAG_MAX}, got {tag}")
    return tag
