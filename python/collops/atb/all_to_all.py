"""ATB's parameter struct of AllToAll."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from collops.atb.param import CommMode, Param
from collops.atb.spellings import known_names


@known_names()
@dataclass(kw_only=True)
class AllToAllParam(Param):
    """Configures AllToAll.

    Args:
        rank: this rank; -1: from hccl_comm or the launcher.
        rank_size: number of ranks, at least 2.
        rank_root: a rank that all ranks agree on; results do not depend on it.
        backend: the backend that runs the call; lccl stands for hccl.
        hccl_comm: a communicator to use: a Communicator, a handle (a number), or None.
        comm_mode: whether ranks are processes or threads.
        rank_table_file: path of an HCCL rank table.
        comm_domain: the group's name, at most 128 characters.
        transpose: exchange blocks of columns, not of elements; not with hccl.
        rsv: reserved bytes, all zero.

    Source of the semantics: ``atb::infer::AllToAllParam``.

    Example:
        >>> import collops
        >>> collops.AllToAllParam(rank_size=2, backend="lccl", transpose=True).transpose
        True
    """

    rank: int = 0
    rank_size: int = 0
    rank_root: int = 0
    backend: str = "hccl"
    hccl_comm: Any = None
    comm_mode: int = CommMode.COMM_MULTI_PROCESS
    rank_table_file: str = ""
    comm_domain: str = ""
    transpose: bool = False
    rsv: bytes = field(default=bytes(62), repr=False)
