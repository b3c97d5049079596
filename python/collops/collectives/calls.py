"""What the methods of a communicator share: the core's plain level, and arguments in words."""

from __future__ import annotations

import math
import numbers
import operator
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from collops.errors import ErrorCode, raise_status

if TYPE_CHECKING:
    from collops._core import PlainLevel

_C = TypeVar("_C", bound=type)


class PlainCalls:
    """Methods whose work is in the core: each reads no argument, and crosses into it once."""

    def __init__(self, plain: PlainLevel) -> None:
        # Of a communicator it returns results, of start() calls that are under way.
        self._plain: Any = plain


def of_communicator(methods: _C) -> _C:
    """Lets Python's message of a missing argument name the class that users know."""
    for name, method in vars(methods).items():
        if isinstance(method, FunctionType):
            method.__qualname__ = f"Communicator.{name}"
    return methods


def bad_argument(message: str) -> NoReturn:
    """Raises ERROR_INVALID_PARAM."""
    raise_status(ErrorCode.ERROR_INVALID_PARAM, message)


def is_time(value: Any) -> bool:
    """Whether `value` is a finite number of seconds above 0."""
    try:
        return isinstance(value, numbers.Real) and 0 < float(value) < math.inf
    except OverflowError:
        return False


def whole_number(name: str, label: str, value: Any) -> int:
    """`value` as a whole number."""
    try:
        return operator.index(value)
    except TypeError:
        bad_argument(f"{name}: {label} must be a whole number, got {value!r}")
