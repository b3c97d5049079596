"""The ranks that a rank table places on this host, and their environment variables."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from collops.errors import ErrorCode, raise_status
from collops.launch.own_job import place_names, thread_variables
from collops.launch.rank_table import read_rank_table

if TYPE_CHECKING:
    from collops.launch.rank_table import RankTable

_LOOK_S = 0.5


def await_table(path: str, timeout_s: float) -> RankTable:
    """Reads a table, once it is complete.

    Args:
        path: of the JSON file.
        timeout_s: seconds to wait while its status is "initializing".

    Raises:
        ArgumentError: it is no table, stays incomplete, or has no host that is this one.
    """
    deadline = time.monotonic() + timeout_s
    while not (table := read_rank_table(path)).completed:
        if time.monotonic() >= deadline:
            _bad(f'rank table "{path}" was not complete in {timeout_s:g} s')
        time.sleep(_LOOK_S)
    if table.here < 0:
        _bad(table.not_here)
    return table


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
    place = place_names(rank, rank_size, local_rank, local_size)
    return dict(os.environ) | shown() | thread_variables(local_size) | place


def shown() -> dict[str, str]:
    """What a rank prints appears at once, although it goes through a pipe."""
    return {"PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1")}


def _bad(message: str) -> NoReturn:
    raise_status(ErrorCode.ERROR_INVALID_PARAM, message)
