"""``collops completion``: a script with which a shell completes the command line of collops."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from collops.cli.main import every_parser
from collops.terminal.arguments import Parser, subparsers

# What the user puts into the shell's start-up file.
_LINES = {
    "bash": '~/.bashrc: eval "$(collops completion bash)"',
    "zsh": '~/.zshrc, after compinit: eval "$(collops completion zsh)"',
    "fish": "~/.config/fish/config.fish: collops completion fish | source",
}


def parser() -> Parser:
    """The parser of the command."""
    parser = Parser(
        prog="collops completion",
        description="Prints a script that completes commands, options and files. It needs shtab "
        "(pip install 'collops[completion]').",
        epilog="In the shell's start-up file: " + "; ".join(_LINES.values()) + ".",
    )
    parser.add_argument("shell", choices=tuple(_LINES), help="the shell that reads the script")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Prints the script; 2 if shtab is not installed."""
    options = parser().parse_args(arguments)
    try:
        import shtab
    except ModuleNotFoundError:
        needed = "shtab, which is not installed: pip install 'collops[completion]', or shtab"
        print(f"collops completion: needs {needed}", file=sys.stderr)
        return 2
    whole = every_parser()
    for program, action in _actions(whole):
        if action.type is Path or str(action.metavar).startswith("FILE"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif words := _fixed_words(program, action.option_strings):
            action.choices = words  # of the script alone: the option takes other spellings, too
    print(shtab.complete(whole, options.shell))
    return 0


def _fixed_words(program: str, options: Sequence[str]) -> Sequence[str]:
    """The operators or element types that an option takes; () of any other option."""
    from collops.bench.elements import NAMES
    from collops.golden.data.dtypes import DTYPES, REDUCE_DTYPES
    from collops.golden.operators.table import OPERATORS
    from collops.plan.command import OPS

    words: dict[str, dict[str, Sequence[str]]] = {
        "plan": {"--op": OPS, "--dtype": REDUCE_DTYPES},
        "golden": {"--op": tuple(OPERATORS), "--dtype": DTYPES},
        "bench": {"--dtype": tuple(NAMES)},
    }
    command = words.get("".join(program.split()[1:2]), {})
    return next((command[option] for option in options if option in command), ())


def _actions(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Every option and argument of a parser and of those of its words, with its program."""
    yield from ((parser.prog, action) for action in parser._actions)
    for each in subparsers(parser).values():
        yield from _actions(each)
