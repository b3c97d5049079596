"""``collops c-flags``: the options with which a C compiler finds collops_c.h and its library."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import collops
from collops.terminal.arguments import Parser


def parser() -> Parser:
    """The parser of the command."""
    return Parser(
        prog="collops c-flags",
        description="Prints the options with which a C compiler builds a program on collops_c.h: "
        "cc program.c $(collops c-flags)",
    )


def main(arguments: Sequence[str]) -> int:
    """Prints the options."""
    parser().parse_args(arguments)
    folder = Path(collops.__file__).parent
    options = [f"-I{folder / 'include'}", f"-L{folder}", f"-Wl,-rpath,{folder}", "-lcollops_c"]
    print(shlex.join(options))
    return 0
