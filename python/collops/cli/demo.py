"""``collops demo``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collops.demo.__main__ import main

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_PROGRAM = "collops demo"


def run(arguments: Sequence[str]) -> int:
    """Runs the demo as ``python -m collops.demo`` does."""
    return main(list(arguments), _PROGRAM)


def parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    from collops.demo.__main__ import parser as own

    return own(_PROGRAM)
