"""The parser of every command's arguments, whose errors are one line and name what is meant."""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from collops.errors import Error, nearest, without_code

_LETTERS = 3  # of a word that begins another


def seconds(text: str) -> float:
    """A number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text!r}")
    return value


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of whole numbers from `least` to `most`; None: to any."""
    taken = f"of {least} or more" if most is None else f"from {least} to {most}"

    def number(text: str) -> int:
        value = int(text) if text.isdecimal() else least - 1
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"a whole number {taken} is needed, got {text!r}")
        return value

    return number


count = whole_number(1)


def counts(text: str, separator: str, least: int = 1) -> tuple[int, ...]:
    """Whole numbers of 1 or more, at least `least` of them."""
    values = tuple(count(part) for part in text.split(separator))
    if len(values) < least:
        raise argparse.ArgumentTypeError(
            f"at least {least} numbers with {separator!r} between them are needed, got {text!r}"
        )
    return values


def words(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Words of a list, each one of `known`, in the order that was given."""
    given = tuple(dict.fromkeys(text.split(",")))
    for word in given:
        if word not in known:
            raise none_of(word, ", ".join(known), known)
    return given


def none_of(word: str, listed: str, known: Iterable[str]) -> argparse.ArgumentTypeError:
    """The error of a word that is none of those that are listed."""
    hint = meant(word, known)
    return argparse.ArgumentTypeError(f"{word!r} is not one of {listed}{hint and f'; {hint}'}")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with the word or option that a misspelt one is like.

    Options are not abbreviated. Parsers of its words are of this class, too.

    Example:
        >>> parser = Parser(prog="cook")
        >>> _ = parser.add_argument("meal", choices=("breakfast", "dinner"))
        >>> try:
        ...     parser.parse_args(["diner"])
        ... except SystemExit as ended:
        ...     ended.code
        2
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})
        self._given: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2."""
        # A required option that is misspelt is reported as missing.
        if message.startswith("the following"):
            option, hint = self._misspelt(self._given)
            message += hint and f"; there is no {option}, {hint}"
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """The options; ends the program if there are arguments that no option takes."""
        options, rest = self.parse_known_args(args, namespace)
        if rest:
            asked = self._asked(options)
            _, hint = asked._misspelt(rest)
            asked.error(f"unrecognized arguments: {' '.join(rest)}{hint and f', {hint}'}")
        return options

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """The options, and the arguments that no option takes."""
        self._given = sys.argv[1:] if args is None else args
        return super().parse_known_args(args, namespace)

    def _asked(self, options: argparse.Namespace) -> Parser:
        """The parser of the word that was given; this one, if it has no words."""
        groups = (one for one in self._actions if isinstance(one, argparse._SubParsersAction))
        chosen = (one.choices.get(getattr(options, one.dest, None) or "") for one in groups)
        return next((one._asked(options) for one in chosen if isinstance(one, Parser)), self)

    def _misspelt(self, words: Sequence[str]) -> tuple[str, str]:
        """The first of the words that is no option and like one, and which; else empty texts."""
        known = list(_options(self))
        options = (word.partition("=")[0] for word in words if word.startswith("--"))
        hints = ((one, meant(one, known)) for one in options if one not in known)
        return next(((option, hint) for option, hint in hints if hint), ("", ""))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(one) for one in action.choices]
        hint = meant(str(value), known)
        wrong = f"invalid choice: {str(value)!r}{hint and f', {hint}'}"
        raise argparse.ArgumentError(action, f"{wrong} (choose from {', '.join(known)})")


def status_of_command(program: str, work: Callable[[], int]) -> int:
    """The exit status of a command's work: 2 and one line where arguments or files are wrong."""
    try:
        return work()
    except (ValueError, OSError, Error) as problem:
        print(f"{program}: {without_code(problem)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a parser's words; another one may be put in their place."""
    groups = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    return next((one._name_parser_map for one in groups), {})


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Every option of a parser and of those of its words."""
    yield from parser._option_string_actions
    for each in subparsers(parser).values():
        yield from _options(each)


def meant(word: str, known: Iterable[str]) -> str:
    """Asks for the one known word that a word begins, else for the most like; "" if none is."""
    bare = {one.lower().lstrip("-"): one for one in known}  # dashes are alike in all options
    start = word.lower().lstrip("-")
    begun = [one for one in bare if one.startswith(start)] if len(start) >= _LETTERS else []
    near = begun[0] if len(begun) == 1 else nearest(start, bare)
    return f"did you mean {bare[near]!r}?" if near else ""
