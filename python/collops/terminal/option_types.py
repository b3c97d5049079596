"""Types of a program's options: numbers, with errors that say what is taken."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def seconds(text: str) -> float:
    """A number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text!r}")
    return value


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of whole numbers from `least` to `most`; None: to any."""
    taken = f"a whole number of at least {least}" if most is None else f"from {least} to {most}"

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"must be {taken}, got {text!r}")
        return value

    return number
