"""Other names that a dataclass takes for its fields."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

_C = TypeVar("_C")


def other_spellings(**names: str) -> Callable[[type[_C]], type[_C]]:
    """Lets a class take and show fields by other names, too, as torch_atb spells them.

    Args:
        **names: the field of each other name.

    Returns:
        A decorator of a class whose constructor takes keywords.

    Raises:
        TypeError: by the constructor, for a field that is given by both of its names.

    Example:
        >>> from dataclasses import dataclass
        >>> @other_spellings(epSize="ep_size")
        ... @dataclass
        ... class Info:
        ...     ep_size: int = 1
        >>> Info(epSize=4)
        Info(ep_size=4)
    """

    def decorate(cls: type[_C]) -> type[_C]:
        construct = cls.__init__

        @functools.wraps(construct)
        def renamed(self: Any, /, *args: Any, **fields: Any) -> None:
            for name in names.keys() & fields.keys():
                if names[name] in fields:
                    raise TypeError(f"{cls.__name__}: {name} and {names[name]} are the same field")
                fields[names[name]] = fields.pop(name)
            construct(self, *args, **fields)

        type.__setattr__(cls, "__init__", renamed)
        for name, field in names.items():
            setattr(cls, name, _alias(field))
        return cls

    return decorate


def _alias(field: str) -> property:
    def get(self: Any) -> Any:
        return getattr(self, field)

    def put(self: Any, value: Any) -> None:
        setattr(self, field, value)

    get.__doc__ = f"Another name of `{field}`."
    return property(get, put)
