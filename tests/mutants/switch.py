"""Which fault is switched on."""

import os

_CHOSEN = int(os.environ.get("TESTED_MUTANT", "0"))


def MUTANT(number: int) -> bool:  # noqa: N802
    """Whether that one is."""
    return number == _CHOSEN
