"""``collops golden``: lists and writes cases, compares tensors, and runs cases on ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collops.cli.choice import Choice

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "run": "run cases or case files on several ranks, and compare with golden",
    "list": "print golden's own cases, or the rows of case files",
    "generate": "write golden's cases: one .npz each, and manifest.json",
    "compare": "compare two files of tensors, and explain a difference",
}


def run(arguments: Sequence[str]) -> int:
    """Runs one of golden's commands; only `run` needs the core. Without one, lists them."""
    summary = "What the operators must compute, and whether they do."
    command = Choice("collops golden", summary, "COMMAND", COMMANDS).word(arguments)
    if command is None:
        return 2
    if command == "run":
        from collops.golden_run.command import main

        return main(arguments[1:])
    from collops.golden.__main__ import main as golden_main

    return golden_main(arguments)
