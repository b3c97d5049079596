"""The parameter structs' base: JSON, pickling, and names of fields, unknown ones refused."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn, TypeVar

from collops.core import core
from collops.errors import ErrorCode, nearest, raise_status

_C = TypeVar("_C")


def known_names(**others: str) -> Callable[[type[_C]], type[_C]]:
    """Lets a dataclass refuse names that are not fields, which Python would accept in assignments.

    Args:
        **others: further names of fields, such as torch_atb's spellings.

    Returns:
        A decorator of a dataclass whose constructor takes keywords.

    Raises:
        TypeError: by the constructor, for a keyword that is not a field, or a field given by both
            of its names.
        AttributeError: by an assignment to a name that is not a field, or when such a name is read.

    Example:
        >>> from dataclasses import dataclass
        >>> @known_names(epSize="ep_size")
        ... @dataclass
        ... class Info:
        ...     ep_size: int = 1
        >>> info = Info(epSize=4)
        >>> info.ep_sise = 2
        Traceback (most recent call last):
        AttributeError: Info has no field ep_sise; did you mean ep_size?
        >>> info
        Info(ep_size=4)
    """

    def decorate(cls: type[_C]) -> type[_C]:
        fields = dict.fromkeys(f.name for f in dataclasses.fields(cls))  # type: ignore[arg-type]
        type.__setattr__(cls, "__init__", _constructor(cls, fields, others))
        type.__setattr__(cls, "__setattr__", _setter(cls, {**fields, **others}))
        type.__setattr__(cls, "__getattr__", _getter(cls, {**fields, **others}))
        for name, field in others.items():
            setattr(cls, name, _alias(field))
        return cls

    return decorate


def _constructor(
    cls: type[Any], fields: Mapping[str, Any], others: Mapping[str, str]
) -> Callable[..., None]:
    construct = cls.__init__

    @functools.wraps(construct)
    def init(self: Any, /, *args: Any, **values: Any) -> None:
        for name in [name for name in values if name not in fields]:
            if name not in others:
                raise TypeError(_no_field(cls, name, fields))
            if others[name] in values:
                raise TypeError(f"{cls.__name__}: {name} and {others[name]} are the same field")
            values[others[name]] = values.pop(name)
        construct(self, *args, **values)

    return init


def _setter(cls: type[Any], names: Mapping[str, Any]) -> Callable[[Any, str, Any], None]:
    def put(self: Any, name: str, value: Any) -> None:
        if name not in names:
            raise AttributeError(_no_field(cls, name, names))
        object.__setattr__(self, name, value)

    return put


def _getter(cls: type[Any], names: Mapping[str, Any]) -> Callable[[Any, str], NoReturn]:
    """Python calls it for names that the object does not have."""

    def get(self: Any, name: str) -> NoReturn:
        if name.startswith("_"):  # what tools look for
            raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}")
        raise AttributeError(_no_field(cls, name, names))

    return get


def _no_field(cls: type[Any], name: str, names: Mapping[str, Any]) -> str:
    """The message for an unknown `name`; camelCase names get a suggestion, too."""
    bare = {_bare(field): field for field in reversed(list(names))}
    if near := nearest(_bare(name), bare):
        return f"{cls.__name__} has no field {name}; did you mean {bare[near]}?"
    return f"{cls.__name__} has no field {name}; its fields are {', '.join(names)}"


def _bare(name: str) -> str:
    return name.replace("_", "").lower()


def _alias(field: str) -> property:
    def get(self: Any) -> Any:
        return getattr(self, field)

    def put(self: Any, value: Any) -> None:
        setattr(self, field, value)

    get.__doc__ = f"Another name of `{field}`."
    return property(get, put)


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


@dataclasses.dataclass(kw_only=True)
class Param:
    """The base of the parameter structs: the fields of all, JSON and pickling.

    Args:
        rank: this rank; -1: from hccl_comm or the launcher.
        rank_size: number of ranks, at least 2.
        rank_root: a rank that all ranks agree on; results do not depend on it.
        backend: the backend that runs the call; COLLOPS_BACKEND may replace it.
        hccl_comm: a communicator to use: a Communicator, a handle (a number), or None.
        comm_mode: whether ranks are processes or threads.
        rank_table_file: path of an HCCL rank table.
        comm_domain: the group's name, at most 128 characters.
        rsv: reserved bytes, all zero.
    """

    rank: int = 0
    rank_size: int = 0
    rank_root: int = 0
    backend: str = "hccl"
    hccl_comm: Any = None
    comm_mode: int = CommMode.COMM_MULTI_PROCESS
    rank_table_file: str = ""
    comm_domain: str = ""
    rsv: bytes = dataclasses.field(default=RSV, repr=False)

    # Functions that make the Python value of a field from its JSON value.
    _readers: ClassVar[dict[str, Callable[[Any], Any]]] = {"comm_mode": member_of(CommMode)}

    def __init_subclass__(cls) -> None:
        # The docstring gets the fields of all structs, but those that it describes itself.
        head, source, rest = (cls.__doc__ or "").partition("\n    Source")
        head += "" if "    Args:\n" in head else "\n    Args:\n"
        common = [line for line in _COMMON if f"\n{line.partition(':')[0]}:" not in head]
        cls.__doc__ = "".join([head, *(f"{line}\n" for line in common), source, rest])

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
        names = {_camel(f.name): f.name for f in dataclasses.fields(cls)}
        known = {names[key]: value for key, value in values.items() if key != "rsv"}
        for name in cls._readers.keys() & known.keys():
            known[name] = cls._readers[name](known[name])
        return cls(**known)

    def _raw_json(self) -> str:
        values = {}
        for f in dataclasses.fields(self):
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
        names = [f.name for f in dataclasses.fields(self)]
        return _rebuild, (type(self), {name: getattr(self, name) for name in names})


_COMMON = [line for line in (Param.__doc__ or "").split("\n") if line.startswith("        ")]


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
