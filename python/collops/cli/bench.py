"""``collops bench``: measures operators on one host or several, beside other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collops.bench.operators import OPERATORS
from collops.cli.choice import Choice

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    """Runs one benchmark; without a name, lists them and returns 2."""
    summary = "Measures operators on one host or several, beside other libraries."
    name = Choice("collops bench", summary, "BENCH", OPERATORS).word(arguments)
    if name is None:
        return 2
    from collops.bench.command import main

    return main(name, arguments[1:])
