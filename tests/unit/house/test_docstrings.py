"""Public names of the package and golden's modules have docstrings that are sentences."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType

import collops.golden

import collops


def modules_of(package: ModuleType) -> list[str]:
    """The package and the modules below it, without those that run as programs."""
    below = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    return [
        package.__name__,
        *(entry.name for entry in below if not entry.name.endswith(("__main__", "._core"))),
    ]


def is_sentence(text: str | None) -> bool:
    """Whether a docstring's first paragraph has words and ends as a sentence does."""
    first = inspect.cleandoc(text or "").split("\n\n")[0].strip()
    return len(first.split()) > 1 and first.endswith((".", ":"))


def methods_of(owner: type) -> list[tuple[str, object]]:
    """The public members that a class defines itself."""
    return [
        (f"{owner.__name__}.{name}", member.fget if isinstance(member, property) else member)
        for name, member in vars(owner).items()
        if not name.startswith("_") and (callable(member) or isinstance(member, property))
    ]


def undocumented(names: list[tuple[str, object]]) -> list[str]:
    """The functions and classes, with their methods, whose docstring is missing or no sentence."""
    found = []
    for name, value in names:
        members = methods_of(value) if inspect.isclass(value) else []
        for label, member in [(name, value), *members]:
            if not is_sentence(getattr(member, "__doc__", None)):
                found.append(label)
    return found


def public_names() -> list[tuple[str, object]]:
    """The functions and classes in `collops.__all__`."""
    values = [(name, getattr(collops, name)) for name in collops.__all__]
    return [(name, value) for name, value in values if callable(value)]


def test_public_names_have_docstrings() -> None:
    names = public_names()
    assert names
    assert undocumented(names) == []


def test_modules_have_docstrings() -> None:
    golden = modules_of(collops.golden)
    assert len(golden) > 1
    missing = [name for name in golden if not is_sentence(importlib.import_module(name).__doc__)]
    assert missing == []
