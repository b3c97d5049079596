"""Finds COLLOPS_ variables of this environment that no program reads."""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFIX = "COLLOPS_"
# What follows the prefix in variables of the tests: their programs, and simulated GPUs and NPUs.
_OF_TESTS = ("TEST_", "SIM_")
# The least similarity (difflib's ratio) of a misspelt name and the one that is meant.
_ALIKE = 0.7


def unknown_variables(known: Sequence[str]) -> dict[str, str]:
    """By the name of each variable that is set and not known: the one that is meant, or ""."""
    names = [name for name in sorted(os.environ) if name.startswith(PREFIX) and name not in known]
    endings = [one.removeprefix(PREFIX) for one in known]
    found = {}
    for name in names:
        ending = name.removeprefix(PREFIX)
        if not ending.startswith(_OF_TESTS):
            near = difflib.get_close_matches(ending, endings, 1, _ALIKE)
            found[name] = f"{PREFIX}{near[0]}" if near else ""
    return found
