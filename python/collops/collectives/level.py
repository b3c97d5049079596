"""The communicator of the plain level: element types, reductions and refusals for all its calls."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from collops.collectives.plain_tensors import both_as_bytes
from collops.collectives.plans import Cache
from collops.collectives.reductions import reduction_name, refuse_reduction
from collops.core import core
from collops.errors import Error, status_of
from collops.tensors import is_torch_type, maker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_F = TypeVar("_F", bound="Callable[..., Any]")

_LONGEST_NAME = 23  # characters of a type's name that fit into a first signal


def documented_by(source: Any) -> Callable[[_F], _F]:
    """Gives a method of the communicator the docstring of the function or class that it calls."""

    def decorate(method: _F) -> _F:
        method.__doc__ = (source.__call__ if isinstance(source, type) else source).__doc__
        # Python's message of a missing argument names the class that users know.
        method.__qualname__ = f"Communicator.{method.__name__}"
        return method

    return decorate


@dataclass(frozen=True)
class Element:
    """An element type, as the ranks compare it."""

    number: int | None  # the core's number of the type; None: elements are moved as bytes
    name: str  # the type's name if it has no number, else ""
    unit: int  # elements of the core per element: 1, or the bytes of a type without a number


class Method:
    """A method of one communicator, and its plans. One thread at a time, as the communicator."""

    def __init__(self, level: PlainLevel) -> None:
        self._level = level
        self._plans: Cache[Any] = Cache()
        self._repeated = level.repeated()

    def _keep(self, plan: Any, x: Any, out: Any, *arguments: Any) -> None:
        """Keeps a call that has ended: one like it need not be prepared again.

        Args:
            plan: the core's plan of the call, for x and out as they are.
            x: the input, as the caller passed it.
            out: the result.
            arguments: all other arguments of the call, as the caller passed them.
        """
        self._repeated.keep(plan, x, out, maker(out), *arguments)


class PlainLevel:
    """A communicator of the core, with tables of types. Only refuse() waits for other ranks.

    Attributes:
        waits: whether a call has ended when it returns.
    """

    waits = True

    def __init__(self, communicator: Any) -> None:
        module = core()
        self.core = communicator
        self.rank = int(communicator.rank)
        self.size = int(communicator.size)
        self.dtypes: dict[str, int] = module.DTYPES
        self.ops: dict[str, int] = module.REDUCE_OPS
        self._dtype_names: dict[int | None, str] = {
            number: name for name, number in self.dtypes.items()
        }
        self._elements: dict[Any, Element] = {}
        self._questions: Cache[Any] = Cache()  # collops._core.RowExchange

    def repeated(self) -> Any:
        """What makes a call like an earlier one; each method has its own."""
        return core().RepeatedCall(self.core)

    def element(self, dtype: Any) -> Element:
        """The element type of a numpy array or a torch tensor."""
        try:
            return self._elements[dtype]
        except KeyError:
            element = self._elements[dtype] = self._describe(dtype)
            return element

    def type_name(self, dtype: Any) -> str:
        """The name by which the ranks compare an element type."""
        element = self.element(dtype)
        return element.name or self._dtype_names[element.number]

    def op_number(self, name: str, op: Any) -> int:
        """The core's number of a reduction; `name` is the operator, for messages."""
        word = reduction_name(op)
        number = self.ops.get(word) if isinstance(word, str) else None
        if number is None:
            refuse_reduction(name, op, self.ops)
        return number

    def question(self, operation: str, tensors: Sequence[Any], dims: Sequence[int]) -> Any:
        """What the ranks agree on before they tell each other the rows of such tensors."""
        terms = [
            (self.type_name(x.dtype), (*x.shape[:dim], *x.shape[dim + 1 :]))
            for x, dim in zip(tensors, dims, strict=True)
        ]
        key = operation, dims[0], tuple(terms)
        return self._questions.get(key) or self._questions.add(key, core().RowExchange(*key))

    def as_moved(self, name: str, x: Any, out: Any) -> tuple[Any, Any]:
        """The two tensors as the core reads them: themselves, or the bytes of other elements."""
        if self.element(x.dtype).number is not None:
            return x, out
        return both_as_bytes(name, x, out)

    def afterwards(self, work: Callable[[], None]) -> None:
        """Runs `work`, which follows a call of the core, once that call has ended."""
        work()

    def result(self, sources: list[int], make: Callable[[list[int]], Any]) -> Any:
        """The result of messages that have ended; `sources`: the rank that sent each."""
        return make(sources)

    def refuse(self, operation: str, error: Exception) -> None:
        """Sends the error to the ranks that wait in this call."""
        try:
            self.core.refuse(operation, *status_of(error))
        except Error:
            return  # the communicator has ended; the caller raises the first error

    def _describe(self, dtype: Any) -> Element:
        if is_torch_type(dtype):
            name = str(dtype).removeprefix("torch.")
            number = self.dtypes.get(name)
        else:
            name = str(dtype)  # contains the fields of a structured type, and byte orders
            number = self.dtypes.get(dtype.name)
        if number is not None:
            return Element(number, "", 1)
        if len(name) > _LONGEST_NAME:
            name = f"{name[:12]}.. {zlib.crc32(name.encode()):08x}"
        return Element(None, name, int(dtype.itemsize))
