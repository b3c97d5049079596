"""The variables of ranks that are started on this host, as a job of their own."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from collops.core import usable_cores
from collops.launch.processes import new_job_id

if TYPE_CHECKING:
    from collections.abc import Mapping

# They describe a job that this process may be a rank of, and would send its ranks there.
FOREIGN = (
    "RANK_TABLE_FILE",
    "RANK_ID",
    "RANK_SIZE",
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
