"""``collops tune``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    """Measures on this host, and prints the sizes."""
    from collops.tune.command import main

    return main(arguments)


def parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    from collops.tune.command import parser as own

    return own()
