"""``collops bench``: what the operators cost here, beside other ways to do the same."""

from __future__ import annotations

import argparse
import importlib
from typing import TYPE_CHECKING

from collops.bench import BENCHES

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    """Runs one benchmark; without a name, lists them."""
    parser = argparse.ArgumentParser(
        prog="collops bench",
        description="What the operators cost here, beside other ways to do the same.",
        epilog="collops bench BENCH --help says more.",
    )
    benches = parser.add_subparsers(dest="bench", metavar="BENCH")
    for name, summary in BENCHES.items():
        benches.add_parser(name, help=summary, add_help=False)
    name = parser.parse_args(arguments[:1]).bench
    if name is None:
        parser.print_help()
        return 0
    return int(importlib.import_module(f"collops.bench.{name}").main(arguments[1:]))
