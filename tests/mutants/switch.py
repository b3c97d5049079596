"""Which faults are switched on."""

import os

_CHOSEN = os.environ.get("TESTED_MUTANT", "").split(",")


def MUTANT(number: int) -> bool:  # noqa: N802
    """Whether that one is."""
    return str(number) in _CHOSEN
