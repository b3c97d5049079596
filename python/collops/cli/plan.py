"""``collops plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    """Predicts the cost of a call on hosts that need not exist."""
    from collops.plan.command import main

    return main(arguments)


def parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    from collops.plan.arguments import parser as own

    return own()
