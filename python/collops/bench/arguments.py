"""What the command lines of the benchmarks share."""

from __future__ import annotations

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def count(text: str) -> int:
    """A whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of 1 or more is needed, got {text!r}")
    return int(text)


def counts(text: str, separator: str, least: int = 1) -> tuple[int, ...]:
    """Whole numbers of 1 or more, at least `least` of them."""
    values = tuple(count(part) for part in text.split(separator))
    if len(values) < least:
        raise argparse.ArgumentTypeError(
            f"at least {least} numbers with {separator!r} between them are needed, got {text!r}"
        )
    return values


def words(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Words of a list, each one of `known`, in the order that was given."""
    given = tuple(dict.fromkeys(text.split(",")))
    for word in given:
        if word not in known:
            raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(known)}")
    return given
