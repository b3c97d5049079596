"""``collops run``: starts the ranks of a job on this host."""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from collops.errors import ErrorCode, raise_status
from collops.launch.job import Job
from collops.launch.processes import new_job_id
from collops.launch.rank_table import read_rank_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.launch.rank_table import RankTable

_LOOK_S = 0.5


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


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line; what follows the script is the script's."""
    parser = argparse.ArgumentParser(
        prog="collops run",
        usage="collops run (-n N | --rank-table FILE) [options] [-m] SCRIPT [ARGUMENT ...]",
        description="Starts the ranks of a job on this host, passes on what they write with the "
        "rank before each line, and ends all when one fails. Its status is the first failed one's.",
        allow_abbrev=False,
    )
    where = parser.add_mutually_exclusive_group(required=True)
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
    options = parser.parse_args(arguments)
    if options.command[:1] == ["--"]:
        del options.command[0]
    if not options.command:
        parser.error("no script given")
    if options.n is not None and options.n < 1:
        parser.error(f"-n must be at least 1, got {options.n}")
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


def await_table(path: str, timeout_s: float) -> RankTable:
    """Reads a table, once it is complete."""
    deadline = time.monotonic() + timeout_s
    while not (table := read_rank_table(path)).completed:
        if time.monotonic() >= deadline:
            _bad(f'rank table "{path}" was not complete in {timeout_s:g} s')
        time.sleep(_LOOK_S)
    if table.here < 0:
        _bad(table.not_here)
    return table


def one_host(rank_size: int) -> list[dict[str, str]]:
    """The variables of the ranks of a job that is here alone, and meets no other one."""
    job = {
        "COLLOPS_JOB_ID": new_job_id("run"),
        "COLLOPS_JOB_KEY": os.environ.get("COLLOPS_JOB_KEY") or secrets.token_hex(32),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }
    return [rank_environment(r, rank_size, r, rank_size) | job for r in range(rank_size)]


def this_host(path: str, table: RankTable) -> list[dict[str, str]]:
    """The variables of the ranks that a table places on this host; its hash names the job."""
    here = [rank for rank, place in enumerate(table.ranks) if place.server == table.here]
    first = table.servers[table.ranks[0].server]
    environments = []
    for local_rank, rank in enumerate(here):
        variables = {
            "RANK_TABLE_FILE": str(Path(path).resolve()),
            "RANK_ID": str(rank),
            "RANK_SIZE": str(len(table.ranks)),
            "DEVICE_ID": str(table.ranks[rank].device_id),
            "MASTER_ADDR": first.host_ip or first.name,
            "MASTER_PORT": os.environ.get("MASTER_PORT", "29500"),
        }
        place = rank_environment(rank, len(table.ranks), local_rank, len(here))
        environments.append(place | variables)
    return environments


def rank_environment(rank: int, rank_size: int, local_rank: int, local_size: int) -> dict[str, str]:
    """This process's variables, with those of one rank in collops' names and in torch's."""
    names = {
        "COLLOPS_RANK": rank,
        "COLLOPS_RANK_SIZE": rank_size,
        "COLLOPS_LOCAL_RANK": local_rank,
        "RANK": rank,
        "WORLD_SIZE": rank_size,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": local_size,
    }
    # What a rank prints appears at once, although it goes through a pipe.
    shown = {"PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1")}
    return dict(os.environ) | shown | {name: str(value) for name, value in names.items()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _bad(message: str) -> NoReturn:
    raise_status(ErrorCode.ERROR_INVALID_PARAM, f"run: {message}")
