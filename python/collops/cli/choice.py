"""Parses the command after ``collops``, ``collops golden`` or ``collops bench``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from collops.terminal.parser import Parser

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence


class Choice:
    """A parser of a command's name, with one message for a missing name.

    Args:
        program: the words before the name.
        description: the program's purpose.
        metavar: the placeholder of the name in the help text.
        words: the names, each with its purpose.
    """

    def __init__(
        self, program: str, description: str, metavar: str, words: Mapping[str, str]
    ) -> None:
        epilog = f"Run '{program} {metavar} --help' for details."
        self.parser = Parser(prog=program, description=description, epilog=epilog)
        self._choices = self.parser.add_subparsers(dest="word", metavar=metavar)
        for word, summary in words.items():
            self._choices.add_parser(word, help=summary, add_help=False)

    def word(self, arguments: Sequence[str]) -> str | None:
        """The first argument; without arguments None, after printing the help to stderr."""
        word: str | None = self.parser.parse_args(arguments[:1]).word
        if word is None:
            self.parser.print_help(sys.stderr)
        return word

    def complete(self, parsers: Mapping[str, argparse.ArgumentParser]) -> Parser:
        """The parser with those of its words, which else parse their own arguments later."""
        for word, parser in parsers.items():
            self._choices.choices[word] = parser  # type: ignore[assignment]
        return self.parser
