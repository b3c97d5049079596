"""The variables of ranks that are started on this host, as a job of their own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

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


def own_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's variables without those of another job, and `variables`."""
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    return kept | dict(variables)


def enter(variables: Mapping[str, str]) -> None:
    """Makes this process one of the job: its environment becomes own_environment(variables)."""
    for name in FOREIGN:
        os.environ.pop(name, None)
    os.environ.update(variables)
