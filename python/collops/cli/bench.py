"""``collops bench``: measures operators on one or more hosts, next to other libraries."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from collops.bench.operators import OPERATORS
from collops.cli.choice import Choice
from collops.golden.operators.spelling import operator_name
from collops.terminal.parser import Parser

if TYPE_CHECKING:
    from collections.abc import Sequence

_OTHERS = {"torch": "calls of torch.distributed on collops beside gloo"}


def run(arguments: Sequence[str]) -> int:
    """Runs one benchmark; without a name, lists them and returns 2."""
    first = [operator_name(word) for word in arguments[:1]]
    name = _choice().word(first)
    if name is None:
        return 2
    if name == "torch":
        try:
            from collops.torch.bench.command import main as measure
        except (ImportError, OSError) as error:
            absent = isinstance(error, ModuleNotFoundError) and error.name == "torch"
            why = "is not installed (pip install torch)" if absent else f"cannot be used: {error}"
            print(f"collops bench torch: torch {why}", file=sys.stderr)
            return 2

        return measure(arguments[1:])
    from collops.bench.command import main

    return main(name, arguments[1:])


def parser() -> Parser:
    """The parser of all benchmarks, for completion."""
    from collops.bench.arguments import parser_of
    from collops.bench.operators import load
    from collops.bench.torch_arguments import parser as torch_parser

    own = {name: parser_of(load(name)) for name in OPERATORS}
    return _choice().complete({**own, "torch": torch_parser()})


def _choice() -> Choice:
    summary = "Measures operators on one host or several, beside other libraries."
    return Choice("collops bench", summary, "BENCH", {**OPERATORS, **_OTHERS})
