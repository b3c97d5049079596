"""known_names: lets a struct refuse unknown names of fields, with a suggestion."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

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
    plain = {_plain(field): field for field in reversed(list(names))}
    near = difflib.get_close_matches(_plain(name), plain, n=1)
    if near:
        return f"{cls.__name__} has no field {name}; did you mean {plain[near[0]]}?"
    return f"{cls.__name__} has no field {name}; its fields are {', '.join(names)}"


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _alias(field: str) -> property:
    def get(self: Any) -> Any:
        return getattr(self, field)

    def put(self: Any, value: Any) -> None:
        setattr(self, field, value)

    get.__doc__ = f"Another name of `{field}`."
    return property(get, put)
