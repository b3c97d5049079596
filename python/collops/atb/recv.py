"""ATB's parameter struct of Recv."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from collops.atb.param import RSV, CommMode, Param
from collops.atb.spellings import known_names


@known_names()
@dataclass(kw_only=True)
class RecvParam(Param):
    """Configures Recv.

    Args:
        rank: this rank; -1: from hccl_comm or the launcher.
        rank_size: number of ranks, at least 2.
        rank_root: a rank; a message does not depend on it.
        src_rank: the rank that sends; not this rank itself.
        backend: the backend that runs the call; COLLOPS_BACKEND may replace it.
        hccl_comm: a communicator to use: a Communicator, a handle (a number), or None.
        comm_mode: whether ranks are processes or threads.
        rank_table_file: path of an HCCL rank table.
        comm_domain: the group's name, at most 128 characters.
        rsv: reserved bytes, all zero.

    Source of the semantics: ``atb::infer::RecvParam``.

    Example:
        >>> import collops
        >>> collops.RecvParam(rank=3, rank_size=4, src_rank=0, backend="shm").src_rank
        0
    """

    rank: int = 0
    rank_size: int = 0
    rank_root: int = 0
    src_rank: int = 1
    backend: str = "hccl"
    hccl_comm: Any = None
    comm_mode: int = CommMode.COMM_MULTI_PROCESS
    rank_table_file: str = ""
    comm_domain: str = ""
    rsv: bytes = field(default=RSV, repr=False)
