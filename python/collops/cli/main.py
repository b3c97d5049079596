"""The program collops: runs the command that its first argument names."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING

import collops
from collops.cli.choice import Choice
from collops.errors import Error
from collops.launch.output import drop

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
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed when this process was started
            setattr(sys, stream, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    choice = choice_of_commands()
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = choice.word(given)
    if name is None:
        return 2
    try:
        run = module_of(name).run
        status = int(run(given[1:]))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        drop(sys.stdout)
        return 128 + signal.SIGPIPE  # as a program that ends by it, without a word
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise  # a command says itself which of its files fails
        drop(sys.stdout)
        print(f"collops {name}: standard output: {error.strerror}", file=sys.stderr)
        return 1
    except Error as error:
        print(f"collops {name}: {error.message}", file=sys.stderr)
        return 2


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
