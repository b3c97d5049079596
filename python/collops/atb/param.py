"""Param, the base of ATB's parameter structs, each of which is a dataclass in its own module."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from collops.core import core
from collops.errors import ErrorCode, raise_status


class CommMode(enum.IntEnum):
    """Whether the ranks are processes, or threads of one process."""

    COMM_UNDEFINED = -1
    COMM_MULTI_PROCESS = 0
    COMM_MULTI_THREAD = 1


# torch_atb has these names at module level, too.
COMM_UNDEFINED = CommMode.COMM_UNDEFINED
COMM_MULTI_PROCESS = CommMode.COMM_MULTI_PROCESS
COMM_MULTI_THREAD = CommMode.COMM_MULTI_THREAD

_P = TypeVar("_P", bound="Param")
# JSON keys that are not the camelCase form of the field's name.
_KEYS = {"two_dim_tp_info": "twoDimTPInfo"}
# Reserved bytes of most structs.
RSV = bytes(64)


def member_of(kind: type[enum.IntEnum]) -> Callable[[Any], Any]:
    """A function that reads a field of `kind` from JSON; unknown numbers stay numbers."""
    return lambda number: kind(number) if number in set(kind) else number


def struct_of(kind: type[Any]) -> Callable[[Any], Any]:
    """A function that reads a field that is a struct from JSON."""
    names = {_camel(f.name): f.name for f in dataclasses.fields(kind)}
    return lambda values: kind(**{names[key]: value for key, value in values.items()})


class Param:
    """The base of the parameter structs: JSON and pickling, from the fields of the dataclass."""

    hccl_comm: Any
    rsv: bytes

    # Functions that make the Python value of a field from its JSON value.
    _readers: ClassVar[dict[str, Callable[[Any], Any]]] = {"comm_mode": member_of(CommMode)}

    def to_json(self) -> str:
        """The struct as JSON with ATB's camelCase keys and numbers for enums; no `hcclComm`."""
        return str(core().normal_json(type(self).__name__, self._raw_json()))

    @classmethod
    def from_json(cls: type[_P], text: str) -> _P:
        """The struct of a JSON text; every key is optional.

        Raises:
            ArgumentError: ERROR_INVALID_PARAM for a key that is unknown, a value of a wrong type,
                `rsv` bytes that are not zero, a text that is not JSON, or a value that is no text.
        """
        if not isinstance(text, (str, bytes)):
            raise_status(
                ErrorCode.ERROR_INVALID_PARAM,
                f"{cls.__name__}.from_json: a JSON text is needed, got {type(text).__name__}: "
                f"pass json.dumps() of it, or {cls.__name__}(**fields)",
            )
        values = json.loads(core().normal_json(cls.__name__, text))
        names = {_camel(f.name): f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        known = {names[key]: value for key, value in values.items() if key != "rsv"}
        for name in cls._readers.keys() & known.keys():
            known[name] = cls._readers[name](known[name])
        return cls(**known)

    def _raw_json(self) -> str:
        values = {}
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if f.name == "hccl_comm" or (f.name == "rsv" and bytes(value) == f.default):
                continue
            values[_camel(f.name)] = list(value) if f.name == "rsv" else value
        return json.dumps(values, default=_plain)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.hccl_comm:
            raise TypeError(
                f"{type(self).__name__} with hccl_comm cannot be pickled: "
                "the communicator belongs to this process"
            )
        names = [f.name for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        return _rebuild, (type(self), {name: getattr(self, name) for name in names})


def _rebuild(cls: type[_P], values: dict[str, Any]) -> _P:
    return cls(**values)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return _KEYS.get(name) or first + "".join(part.capitalize() for part in others)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        values = {_camel(f.name): getattr(value, f.name) for f in dataclasses.fields(value)}
        return {key: int(v) if isinstance(v, bool) else v for key, v in values.items()}
    # numpy arrays and numbers, and other objects that convert themselves to Python objects.
    if hasattr(value, "tolist"):
        return value.tolist()
    raise_status(
        ErrorCode.ERROR_INVALID_PARAM,
        f"a {type(value).__name__} is not a value for a field of a parameter struct",
    )
