"""``collops golden``: lists and writes cases, compares tensors, and runs cases on ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collops.cli.choice import Choice
from collops.terminal import Progress
from collops.terminal.parser import Parser, subparsers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMMANDS = {
    "run": "run cases or case files on several ranks, and compare with golden",
    "list": "print golden's own cases, or the rows of case files",
    "generate": "write golden's cases: one .npz each, and manifest.json",
    "compare": "compare two files of tensors, and explain a difference",
}


def run(arguments: Sequence[str]) -> int:
    """Runs one of golden's commands; only `run` needs the core. Without one, lists them."""
    command = _choice().word(arguments)
    if command is None:
        return 2
    if command == "run":
        from collops.golden_run.command import main

        return main(arguments[1:])
    from collops.golden.__main__ import main as golden_main

    return golden_main(arguments, _shown(), Parser)


def parser() -> Parser:
    """The parser of all of golden's commands, for completion."""
    from collops.golden.__main__ import parser_of
    from collops.golden_run.command import parser as run_parser

    own = subparsers(parser_of("collops golden"))
    # Without the other name of generate, which only `python -m golden` takes.
    known = {word: own[word] for word in COMMANDS if word in own}
    return _choice().complete({"run": run_parser(), **known})


def _choice() -> Choice:
    summary = "Lists, writes and runs the operators' reference cases, and compares tensors."
    return Choice("collops golden", summary, "COMMAND", COMMANDS)


def _shown() -> Callable[[int, int], None]:
    """A function that shows on a terminal how many of the cases are written."""
    made: list[Progress] = []

    def show(done: int, total: int) -> None:
        if not made:
            made.append(Progress(total))
        made[0].show(done, "cases written")
        if done == total:
            made[0].clear()

    return show
