"""The program collops: runs the command that its first argument names."""

from __future__ import annotations

import importlib
import signal
import sys
from typing import TYPE_CHECKING

import collops
from collops.cli.choice import Choice
from collops.errors import Error, without_code
from collops.terminal.streams import OutputError, standard_streams

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

# name -> purpose. The module, collops.cli.NAME with _ for -, is imported when a command is called.
COMMANDS = {
    "run": "start the ranks of a job on this host",
    "golden": "run golden's cases and ATB's case files, compare tensors, explain differences",
    "rank-table": "check an HCCL rank table, or make one",
    "doctor": "list what works on this machine, what does not, and why",
    "npu-check": "check the backend hccl on this machine's NPUs, and write a report",
    "bench": "measure operators on one or more hosts, next to MPI, gloo and torch",
    "trace": "merge the traces of a run's ranks, and list the calls with late ranks",
    "tune": "measure the sizes at which AllReduce should switch its algorithm on this machine",
    "plan": "predict the cost of a call on many hosts, and which limit it reaches first",
    "completion": "print the completion script for bash, zsh or fish",
    "demo": "run a transformer layer over an uneven batch, and compare it with one process",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    program = " ".join(["collops", *given[:1]])
    try:
        with standard_streams(passes_on=given[:1] == ["run"]):
            return _run(program, given)
    except OutputError as failed:
        if failed.unread:
            return 128 + signal.SIGPIPE  # as a program that ends by it, without a word
        print(f"{program}: standard output: {failed.reason}", file=sys.stderr)
        return 1


def _run(program: str, arguments: Sequence[str]) -> int:
    name = choice_of_commands().word(arguments)
    if name is None:
        return 2
    try:
        return int(module_of(name).run(arguments[1:]))
    except (Error, OSError) as error:
        print(f"{program}: {without_code(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


def choice_of_commands() -> Choice:
    """The parser of the command's name."""
    summary = "Uneven collectives, the same on CPUs, GPUs and NPUs."
    choice = Choice("collops", summary, "COMMAND", COMMANDS)
    choice.parser.add_argument(
        "--version", action="version", version=f"collops {collops.__version__}"
    )
    return choice


def module_of(name: str) -> ModuleType:
    """The module of a command, with its functions run() and parser()."""
    return importlib.import_module(f"collops.cli.{name.replace('-', '_')}")
