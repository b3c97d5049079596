"""ATB's parameter struct of Broadcast."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from collops.atb.param import RSV, CommMode, Param
from collops.atb.spellings import known_names


@known_names()
@dataclass(kw_only=True)
class BroadcastParam(Param):
    """Configures Broadcast.

    Args:
        rank: this rank; -1: from hccl_comm or the launcher.
        rank_size: number of ranks, at least 2.
        rank_root: the rank whose x all others get.
        hccl_comm: a communicator to use: a Communicator, a handle (a number), or None.
        comm_mode: whether ranks are processes or threads.
        backend: the backend that runs the call; COLLOPS_BACKEND may replace it.
        rank_table_file: path of an HCCL rank table.
        comm_domain: the group's name, at most 128 characters.
        rsv: reserved bytes, all zero.

    Source of the semantics: ``atb::infer::BroadcastParam``.

    Example:
        >>> import collops
        >>> collops.BroadcastParam(rank_size=4, rank_root=3).rank_root
        3
    """

    rank: int = 0
    rank_size: int = 0
    rank_root: int = 0
    hccl_comm: Any = None
    comm_mode: int = CommMode.COMM_MULTI_PROCESS
    backend: str = "hccl"
    rank_table_file: str = ""
    comm_domain: str = ""
    rsv: bytes = field(default=RSV, repr=False)
