"""Prepares docstrings for the API pages of the site."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import griffe

STRUCTS = "collops.atb."


def at_run_time(struct: griffe.Class) -> str:
    """The docstring of a struct once it is made, which has the fields of all structs."""
    made = getattr(importlib.import_module(struct.module.path), struct.name)
    return inspect.getdoc(made) or ""


class Docstrings(griffe.Extension):
    """Completes the docstrings of ATB's structs, and lets griffe find the examples."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Changes the docstring of a function, a class or a module."""
        if obj.docstring is None:
            return
        text = obj.docstring.value
        if isinstance(obj, griffe.Class) and isinstance(obj.parent, griffe.Module):
            text = at_run_time(obj) if obj.path.startswith(STRUCTS) else text
        # griffe calls the section Examples.
        obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
