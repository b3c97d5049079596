"""Prepares docstrings for the API pages of the site."""

from __future__ import annotations

import importlib
import inspect
import re
from functools import reduce
from typing import Any

import griffe

DECORATOR = "documented_by"


def set_at_run_time(method: griffe.Function) -> str:
    """The docstring that a method has once its module is imported."""
    module = importlib.import_module(method.module.path)
    path = method.path.removeprefix(f"{module.__name__}.").split(".")
    return inspect.getdoc(reduce(getattr, path, module)) or ""


class Docstrings(griffe.Extension):
    """Adds the docstrings that the sources do not show, and lets griffe find the examples."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Completes the docstring of a function, a class or a module."""
        if obj.docstring is None and isinstance(obj, griffe.Function):
            names = [decorator.callable_path.rpartition(".")[2] for decorator in obj.decorators]
            if DECORATOR in names:
                obj.docstring = griffe.Docstring(set_at_run_time(obj), parent=obj, parser="google")
        if obj.docstring is not None:  # griffe calls the section Examples
            text = obj.docstring.value
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
