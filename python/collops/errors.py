"""The exceptions of collops: each has an error code and is also a standard exception."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class ErrorCode(enum.IntEnum):
    """ATB's error codes (atb/types.h) with their numbers; collops' own start at 100."""

    NO_ERROR = 0
    ERROR_INVALID_PARAM = 1
    ERROR_INVALID_GRAPH = 2
    ERROR_INTERNAL_ERROR = 3
    ERROR_RT_FAIL = 4
    ERROR_INVALID_IN_TENSOR_NUM = 5
    ERROR_INVALID_TENSOR_DTYPE = 6
    ERROR_INVALID_TENSOR_FORMAT = 7
    ERROR_INVALID_TENSOR_DIM = 8
    ERROR_INVALID_TENSOR_SIZE = 9
    ERROR_OPERATION_NULL_RUNNER = 10
    ERROR_GRAPH_INFERSHAPE_FUNC_FAIL = 11
    ERROR_CANN_ERROR = 12
    ERROR_INVALID_TENSOR_INI_MATCH = 13
    ERROR_INVALID_TENSOR_ADDR = 14
    ERROR_INVALID_TENSOR_NUM = 15
    ERROR_INVALID_TENSOR_DIM_NUM = 16
    ERROR_INVALID_SINGLE_OPERATION_PARAM = 17
    ERROR_GRAPH_NODE_RESHAPE_FUNC_FAIL = 18
    ERROR_INVALID_GRAPH_NODE_CHUNK = 19
    ERROR_INVALID_CONTEXT_ADDR = 20
    ERROR_INVALID_STREAM = 21
    ERROR_INVALID_WORKSPACE_SIZE = 22
    ERROR_INVALID_WORKSPACE_ADDR = 23
    ERROR_INVALID_OPERATION_ADDR = 24
    ERROR_HCCL_FAIL = 25
    ERROR_OUT_OF_DEVICE_MEMORY = 26
    ERROR_OUT_OF_HOST_MEMORY = 27
    ERROR_COMM_EMPTY = 28
    ERROR_COPY_HOST_MEMORY_FAIL = 29
    ERROR_TIMEOUT = 100
    ERROR_PEER_LOST = 101
    ERROR_RANK_MISMATCH = 102
    ERROR_UNSUPPORTED = 103
    ERROR_ABORTED = 104


class Error(RuntimeError):
    """An error of collops; ``code`` is a number, ``name`` the code's name, ``message`` a sentence.

    A RuntimeError, as torch_atb's errors are.

    Example:
        >>> import collops
        >>> try:
        ...     collops.Operation(collops.AllGatherVParam(rank=0, rank_size=1))
        ... except collops.Error as error:
        ...     print(error.code, error.name, isinstance(error, ValueError))
        1 ERROR_INVALID_PARAM True
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = int(code)
        self.message = message

    @property
    def name(self) -> str:
        """The code's name in ATB's spelling, such as ``"ERROR_INVALID_PARAM"``."""
        return ErrorCode(self.code).name if self.code in _CODES else "ERROR_UNKNOWN"

    def __str__(self) -> str:
        return f"{self.message} [{self.name}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.message), self.__dict__


class ArgumentError(Error, ValueError):
    """An argument, a tensor or a parameter struct is wrong in this process."""


class OutOfMemoryError(Error, MemoryError):
    """This process, its container or its device has no memory left for a call."""


class SystemFailureError(Error):
    """The operating system, a driver or an engine such as HCCL failed in a call that was right."""


class RankMismatchError(Error, ValueError):
    """The ranks disagree about a call, or another rank has refused to take part in it."""


class RankTimeoutError(Error, TimeoutError):
    """A rank did not begin a call within the time-out."""


class PeerLostError(Error, ConnectionError):
    """A rank's process has ended, or the rank has left."""


class AbortedError(Error, ConnectionError):
    """A rank has ended the communicator, or this one has closed it."""


class UnsupportedError(Error, NotImplementedError):
    """A backend, or the core itself, cannot do this here."""


# Keyword arguments of torch, MPI and numpy, and what the parameters are called here.
_KEYWORDS_OF_OTHERS = {
    "axis": ("dim",),
    "counts": ("sizes", "send_sizes"),
    "dest": ("to",),
    "gather_rows": ("sizes",),
    "dst": ("to", "root"),
    "recv_counts": ("recv_sizes", "sizes"),
    "scatter_rows": ("sizes",),
    "send_counts": ("send_sizes", "sizes"),
    "source": ("from_",),
    "src": ("root", "from_"),
    "timeout": ("timeout_s",),
    "world_size": ("rank_size",),
}
_CODES = frozenset(ErrorCode)
_CLASSES: dict[int, type[Error]] = {
    ErrorCode.ERROR_INTERNAL_ERROR: SystemFailureError,
    ErrorCode.ERROR_RT_FAIL: SystemFailureError,
    ErrorCode.ERROR_CANN_ERROR: SystemFailureError,
    ErrorCode.ERROR_HCCL_FAIL: SystemFailureError,
    ErrorCode.ERROR_COPY_HOST_MEMORY_FAIL: SystemFailureError,
    ErrorCode.ERROR_OUT_OF_DEVICE_MEMORY: OutOfMemoryError,
    ErrorCode.ERROR_OUT_OF_HOST_MEMORY: OutOfMemoryError,
    ErrorCode.ERROR_TIMEOUT: RankTimeoutError,
    ErrorCode.ERROR_PEER_LOST: PeerLostError,
    ErrorCode.ERROR_RANK_MISMATCH: RankMismatchError,
    ErrorCode.ERROR_UNSUPPORTED: UnsupportedError,
    ErrorCode.ERROR_ABORTED: AbortedError,
}


def status_error(code: int, message: str) -> Error:
    """The exception of a status; its class follows from the code."""
    return _CLASSES.get(code, ArgumentError)(code, message)


def raise_status(code: int, message: str) -> NoReturn:
    """Raises the exception of a status."""
    raise status_error(code, message)


def status_of(error: BaseException) -> tuple[int, str]:
    """The code and message that other ranks get for an exception of this rank."""
    if isinstance(error, Error):
        return error.code, as_utf8(error.message)
    code = ErrorCode.ERROR_INTERNAL_ERROR
    if isinstance(error, MemoryError):
        code = ErrorCode.ERROR_OUT_OF_HOST_MEMORY
    return int(code), describe(error)


def describe(error: BaseException) -> str:
    """The class and the text of an exception, as the core takes it, whatever the text is."""
    name = type(error).__name__
    try:
        text = str(error)
        return as_utf8(f"{name}: {text}" if text else name)
    except Exception:  # its __str__ raises; the other ranks wait for a text all the same
        return name


def without_code(error: Exception) -> str:
    """What a command says of an error: its message, or of a file the name and the reason."""
    if isinstance(error, Error):
        return error.message
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def nearest(word: str, known: Iterable[str], alike: float = 0.6) -> str:
    """The known word that a misspelt one is most like; "" if none is.

    Args:
        word: what was written.
        known: the right words.
        alike: the least similarity, from 0 to 1, of the two words.
    """
    from difflib import get_close_matches  # takes time, and is seldom needed

    return next(iter(get_close_matches(word, list(known), 1, alike)), "")


def missing_attribute(
    owner: str, name: str, known: Iterable[str], shown: str, others: Mapping[str, str]
) -> AttributeError:
    """The error for an attribute that an object does not have, with the one that was meant.

    Args:
        owner: the object in words, such as ``"a communicator"``.
        name: the attribute's name.
        known: the names of all attributes.
        shown: how users call the object, such as ``"comm"``.
        others: names in other libraries, in lower case, and what they are here.
    """
    text = f"{owner} has no attribute {name!r}"
    if name.startswith("_"):  # what tools look for
        return AttributeError(text)
    public = [one for one in known if not one.startswith("_")]
    found = others.get(name.lower()) or nearest(name.lower(), public, 0.7)
    return AttributeError(f"{text}; did you mean {shown}.{found}?" if found else text)


def add_keyword_hint(
    error: BaseException, call: Callable[..., object], given: Iterable[str]
) -> None:
    """Adds the parameter that was meant, if one of the given keywords is none of `call`."""
    import inspect

    known = list(inspect.signature(call).parameters)
    wrong = next((word for word in given if word not in known), "")
    if not wrong or not isinstance(error, TypeError):
        return
    words = (word for word in _KEYWORDS_OF_OTHERS.get(wrong, ()) if word in known)
    if meant := next(words, "") or nearest(wrong, known):
        error.args = (f"{error}; did you mean {meant}?",)


def hints_at_keywords(call: Callable[_P, _T]) -> Callable[_P, _T]:
    """Adds the parameter that was meant to the error of a wrong keyword; not for frequent calls."""

    @functools.wraps(call)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return call(*args, **kwargs)
        except TypeError as error:
            add_keyword_hint(error, call, kwargs)
            raise

    return checked


def as_utf8(text: str) -> str:
    """Without what UTF-8 cannot hold, such as the bytes of a file's name that is no text."""
    return text.encode("utf-8", "backslashreplace").decode()
