"""ATB's parameter struct of ReduceScatter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from collops.atb.param import RSV, CommMode, Param
from collops.atb.spellings import known_names


@known_names()
@dataclass(kw_only=True)
class ReduceScatterParam(Param):
    """Configures ReduceScatter.

    Args:
        rank: this rank; -1: from hccl_comm or the launcher.
        rank_size: number of ranks, at least 2.
        rank_root: a rank that all ranks agree on; results do not depend on it.
        reduce_type: ``"sum"``, ``"max"``, ``"min"`` or, not with lccl, ``"prod"``.
        hccl_comm: a communicator to use: a Communicator, a handle (a number), or None.
        comm_mode: whether ranks are processes or threads.
        backend: the backend that runs the call; lccl stands for hccl.
        rank_table_file: path of an HCCL rank table.
        comm_domain: the group's name, at most 128 characters.
        rsv: reserved bytes, all zero.

    Source of the semantics: ``atb::infer::ReduceScatterParam``.

    Example:
        >>> import collops
        >>> collops.ReduceScatterParam(rank_size=2, reduce_type="max").backend
        'lccl'
    """

    rank: int = 0
    rank_size: int = 0
    rank_root: int = 0
    reduce_type: str = "sum"
    hccl_comm: Any = None
    comm_mode: int = CommMode.COMM_MULTI_PROCESS
    backend: str = "lccl"
    rank_table_file: str = ""
    comm_domain: str = ""
    rsv: bytes = field(default=RSV, repr=False)
