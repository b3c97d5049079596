"""``collops run``: starts the ranks of a job on this host."""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from collops.errors import ErrorCode, raise_status
from collops.launch.job import Job
from collops.launch.own_job import own_environment, place_names
from collops.launch.processes import new_job_id
from collops.launch.table_ranks import await_table, shown, this_host
from collops.terminal.parser import Parser

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    """Starts the ranks, and returns the status of the first that failed, or 0."""
    options = parse(arguments)
    command = command_of(options)
    if options.rank_table is None:
        environments = one_host(options.n)
    else:
        table = await_table(options.rank_table, options.timeout_s)
        environments = this_host(options.rank_table, table)
    try:
        return Job(command, environments).run()
    except OSError as error:
        _bad(f"{options.command[0]}: {error.strerror or error}")


def parser() -> Parser:
    """The parser of the command."""
    parser = Parser(
        prog="collops run",
        usage="collops run (-n N | --rank-table FILE) [options] [-m] SCRIPT [ARGUMENT ...]",
        description="Starts the ranks of a job on this host, passes on what they write with the "
        "rank before each line, and ends all when one fails. Its status is the first failed one's.",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-n", type=int, metavar="N", help="ranks, all on this host")
    where.add_argument(
        "--rank-table", metavar="FILE", help="start the ranks that this table places on this host"
    )
    parser.add_argument(
        "--timeout-s",
        type=float,
        default=300.0,
        help="seconds to wait for a table that is not complete (default: 300)",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("-m", action="store_true", dest="module", help="SCRIPT is a Python module")
    kind.add_argument(
        "--no-python", action="store_true", help="SCRIPT is a program, not a Python script"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line; what follows the script is the script's."""
    own = parser()
    options = own.parse_args(arguments)
    if options.n is None and options.rank_table is None:
        late = next((one for one in options.command if one in ("-n", "--rank-table")), None)
        hint = f"; {late} stands behind the script, and is the script's" if late else ""
        own.error(f"one of the arguments -n --rank-table is required{hint}")
    if options.command[:1] == ["--"]:
        del options.command[0]
    if not options.command:
        own.error("no script given")
    if options.n is not None and options.n < 1:
        own.error(f"-n must be at least 1, got {options.n}")
    return options


def command_of(options: argparse.Namespace) -> list[str]:
    """The program that every rank runs; what cannot be started is an error here."""
    name, *rest = options.command
    if options.no_python:
        if shutil.which(name) is None:
            _bad(f"{name}: no such program")
        return [name, *rest]
    if options.module:
        return [sys.executable, "-m", name, *rest]
    if not Path(name).is_file():
        _bad(f"{name}: no such script; a module takes -m, another program --no-python")
    return [sys.executable, name, *rest]


def one_host(rank_size: int) -> list[dict[str, str]]:
    """The variables of the ranks of a job that is here alone, and meets no other one."""
    job = {
        "COLLOPS_JOB_ID": new_job_id("run"),
        "COLLOPS_JOB_KEY": os.environ.get("COLLOPS_JOB_KEY") or secrets.token_hex(32),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }
    return [
        own_environment(shown() | place_names(r, rank_size, r, rank_size) | job)
        for r in range(rank_size)
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _bad(message: str) -> NoReturn:
    raise_status(ErrorCode.ERROR_INVALID_PARAM, message)
