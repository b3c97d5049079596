"""The word after ``collops``, ``collops golden`` or ``collops bench``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Choice:
    """A parser of one word, which says the same wherever a word is missing.

    Args:
        program: what stands before the word.
        description: what all of it is for.
        metavar: what the word is called.
        words: the words, with what each does.
    """

    def __init__(
        self, program: str, description: str, metavar: str, words: Mapping[str, str]
    ) -> None:
        epilog = f"{program} {metavar} --help says more."
        self.parser = argparse.ArgumentParser(
            prog=program, description=description, epilog=epilog, allow_abbrev=False
        )
        choices = self.parser.add_subparsers(dest="word", metavar=metavar)
        for word, summary in words.items():
            choices.add_parser(word, help=summary, add_help=False)

    def word(self, arguments: Sequence[str]) -> str | None:
        """The first argument; None where there is none: the help is then on stderr."""
        word: str | None = self.parser.parse_args(arguments[:1]).word
        if word is None:
            self.parser.print_help(sys.stderr)
        return word
