"""``collops run``: starts the ranks of a job on this host."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from collops.errors import ErrorCode, raise_status
from collops.launch.environment import (
    await_table,
    job_variables,
    own_environment,
    place_names,
    shown,
    this_host,
)
from collops.launch.programs import Job
from collops.terminal.arguments import Parser, seconds

_PYTHON = re.compile(r"(python|pypy)[\d.]*")
# What torchrun and mpirun call -n.
_OTHERS_N = ("--n", "--np", "--nproc", "--nprocs", "--nproc-per-node", "--nproc_per_node")


def main(arguments: Sequence[str]) -> int:
    """Starts the ranks, and returns the status of the first that failed, or 0."""
    options = parse(arguments)
    command = command_of(options)
    if options.rank_table is None:
        environments = one_host(options.n)
    else:
        table = await_table(options.rank_table, options.timeout_s)
        environments = this_host(options.rank_table, table)
    return Job(command, environments, options.restart).run()


def parser() -> Parser:
    """The parser of the command."""
    parser = Parser(
        prog="collops run",
        usage="collops run (-n N | --rank-table FILE) [options] [-m] SCRIPT [ARGUMENT ...]",
        description="Starts the ranks of a job on this host, prints their output with the rank "
        "before each line, and ends all ranks when one fails, or starts it anew (--restart).",
        epilog="Sets OMP_NUM_THREADS, where you have not, to the cores of this process divided by "
        "the ranks of this host. Exit status: that of the first rank that failed, 128 + the number "
        "of the signal that ended it; after SIGINT, SIGTERM or SIGHUP 128 + its number, but 0 if "
        "every rank handled it and ended with 0.",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-n", type=int, metavar="N", help="number of ranks, all on this host")
    where.add_argument(
        "--rank-table", metavar="FILE", help="start the ranks that this table places on this host"
    )
    parser.add_argument(
        "--timeout-s",
        type=seconds,
        default=300.0,
        metavar="S",
        help='seconds to wait while the table\'s status is "initializing" (default: 300)',
    )
    parser.add_argument(
        "--restart",
        type=int,
        default=0,
        metavar="N",
        help="start a rank that fails anew, at most N times in all; the others go on (default: 0)",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("-m", action="store_true", dest="module", help="SCRIPT is a Python module")
    kind.add_argument(
        "--no-python",
        action="store_true",
        help="SCRIPT is a program found on PATH, not a Python script",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line; arguments after the script belong to the script."""
    own = parser()
    _check_launcher_words(own, arguments)
    options = own.parse_args(arguments)
    if options.command[:1] == ["--"]:
        del options.command[0]
    if options.n is None and options.rank_table is None:
        late = next((one for one in ("-n", "--rank-table") if one in options.command), None)
        if late:
            script = options.command[0]
            own.error(f"{late} must come before SCRIPT: what follows {script} is passed to it")
        own.error("one of the arguments -n --rank-table is required")
    if not options.command:
        own.error("no script given")
    if options.n is not None and options.n < 1:
        own.error(f"-n must be at least 1, got {options.n}")
    if options.restart < 0:
        own.error(f"--restart must be at least 0, got {options.restart}")
    return options


def _check_launcher_words(own: Parser, arguments: Sequence[str]) -> None:
    """Refuses what other launchers call -n, before the first word that is no option."""
    own_words = list(itertools.takewhile(lambda word: word.startswith("-"), arguments))
    if "-np" in own_words:
        given = arguments[len(own_words)] if len(own_words) < len(arguments) else "N"
        own.error(f"-np: write -n {given}")
    for word in own_words:
        name = word.partition("=")[0]
        if name in _OTHERS_N:
            own.error(f"unknown option {name}: did you mean -n?")


def command_of(options: argparse.Namespace) -> list[str]:
    """The program that every rank runs; raises an error if it cannot be started."""
    name, *rest = options.command
    if options.no_python:
        if shutil.which(name) is None:
            _bad(f"{name}: {'not executable' if Path(name).is_file() else 'no such program'}")
        return [name, *rest]
    if options.module:
        return [sys.executable, "-m", name, *rest]
    begin = _first_line(name) if Path(name).is_file() else b""
    if begin.startswith(b"\x7fELF"):
        return [os.path.abspath(name), *rest]
    if _PYTHON.fullmatch(Path(name).name):
        _bad(f"{name}: leave it out: collops run starts SCRIPT with {sys.executable}")
    if Path(name).is_dir():
        if not Path(name, "__main__.py").is_file():
            _bad(f"{name}: a folder without __main__.py")
    elif not Path(name).is_file():
        fault = "not a regular file" if Path(name).exists() else "no such script"
        _bad(f"{name}: {fault}; pass -m for a module, --no-python for another program")
    if begin.startswith(b"#!") and b"python" not in begin and Path(name).suffix != ".py":
        _bad(f"{name}: not a Python script: it begins with {os.fsdecode(begin)}; pass --no-python")
    return [sys.executable, name, *rest]


def one_host(rank_size: int) -> list[dict[str, str]]:
    """The variables of the ranks of a job on this host alone; it never connects to another job."""
    key = os.environ.get("COLLOPS_JOB_KEY") or secrets.token_hex(32)
    job = {"COLLOPS_JOB_KEY": key, **job_variables("run", rank_size)}
    return [
        own_environment(shown() | place_names(r, rank_size, r, rank_size) | job)
        for r in range(rank_size)
    ]


def _first_line(file: str) -> bytes:
    try:
        with open(file, "rb") as content:
            return content.readline(200).strip()
    except OSError as error:
        _bad(f"{file}: {error.strerror}")


def _bad(message: str) -> NoReturn:
    raise_status(ErrorCode.ERROR_INVALID_PARAM, message)
