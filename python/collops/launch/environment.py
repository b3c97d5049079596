"""The variables of the ranks of a job: of one on this host alone, or of a rank table."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from collops.core import usable_cores
from collops.errors import ErrorCode, raise_status
from collops.launch.processes import new_job_id
from collops.launch.rank_table import read_rank_table

if TYPE_CHECKING:
    from collops.launch.rank_table import RankTable


# They describe a job that this process may be a rank of, and would send its ranks there.
FOREIGN = (
    "RANK_TABLE_FILE",
    "RANK_ID",
    "RANK_SIZE",
    "COLLOPS_RESTARTS",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
)


def place_names(rank: int, rank_size: int, local_rank: int, local_size: int) -> dict[str, str]:
    """The place of a rank, in collops' names and in torch's; it goes before a launcher's names."""
    names = {
        "COLLOPS_RANK": rank,
        "COLLOPS_RANK_SIZE": rank_size,
        "COLLOPS_LOCAL_RANK": local_rank,
        "RANK": rank,
        "WORLD_SIZE": rank_size,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": local_size,
    }
    return {name: str(value) for name, value in names.items()}


def job_variables(starter: str, rank_size: int) -> dict[str, str]:
    """The variables that all ranks of a new job on this host have; torch meets at MASTER_ADDR."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        "COLLOPS_JOB_ID": new_job_id(starter),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        **thread_variables(rank_size),
    }


def thread_variables(local_size: int) -> dict[str, str]:
    """OMP_NUM_THREADS, as the user has set it, or a rank's share of the cores of this host.

    Without it, torch and other OpenMP programs start as many threads as there are cores in every
    rank, which then wait for each other.
    """
    if given := os.environ.get("OMP_NUM_THREADS"):
        return {"OMP_NUM_THREADS": given}
    cores, _ = usable_cores()
    return {"OMP_NUM_THREADS": str(max(1, cores // local_size))}


def own_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's variables without those of another job, and `variables`."""
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    return kept | dict(variables)


def enter(variables: Mapping[str, str]) -> None:
    """Makes this process one of the job: its environment becomes own_environment(variables)."""
    for name in FOREIGN:
        os.environ.pop(name, None)
    os.environ.update(variables)


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
            "MASTER_ADDR": first.address,
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
