"""ATB's parameter structs of AllToAllV, with counts as fields and with counts as tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from collops.atb.param import RSV, CommMode, Param
from collops.atb.spellings import known_names


@known_names()
@dataclass(kw_only=True)
class AllToAllVParam(Param):
    """Configures AllToAllV.

    Args:
        rank: this rank; -1: from hccl_comm or the launcher.
        rank_size: number of ranks, at least 2.
        rank_root: a rank that all ranks agree on; results do not depend on it.
        send_counts: elements that go to each rank.
        sdispls: where each rank's slice begins in x, in elements.
        recv_counts: elements that come from each rank, not all 0.
        rdispls: where each rank's block begins in the output, in elements.
        backend: the backend that runs the call; COLLOPS_BACKEND may replace it.
        hccl_comm: a communicator to use: a Communicator, a handle (a number), or None.
        comm_mode: whether ranks are processes or threads.
        rank_table_file: path of an HCCL rank table.
        comm_domain: the group's name, at most 128 characters.
        rsv: reserved bytes, all zero.

    Source of the semantics: ``atb::infer::AllToAllVParam``.

    Example:
        >>> import collops
        >>> param = collops.AllToAllVParam(rank_size=2, send_counts=[3, 1], sdispls=[0, 3])
        >>> param.send_counts, param.recv_counts
        ([3, 1], [])
    """

    rank: int = 0
    rank_size: int = 0
    rank_root: int = 0
    send_counts: list[int] = field(default_factory=list)
    sdispls: list[int] = field(default_factory=list)
    recv_counts: list[int] = field(default_factory=list)
    rdispls: list[int] = field(default_factory=list)
    backend: str = "hccl"
    hccl_comm: Any = None
    comm_mode: int = CommMode.COMM_MULTI_PROCESS
    rank_table_file: str = ""
    comm_domain: str = ""
    rsv: bytes = field(default=RSV, repr=False)


@known_names()
@dataclass(kw_only=True)
class AllToAllVV2Param(Param):
    """Configures AllToAllVV2: AllToAllV with counts and displacements as input tensors.

    Args:
        rank: this rank; -1: from hccl_comm or the launcher.
        rank_size: number of ranks, at least 2.
        rank_root: a rank that all ranks agree on; results do not depend on it.
        backend: the backend that runs the call; COLLOPS_BACKEND may replace it.
        hccl_comm: a communicator to use: a Communicator, a handle (a number), or None.
        comm_mode: whether ranks are processes or threads.
        rank_table_file: path of an HCCL rank table.
        comm_domain: the group's name, at most 128 characters.
        rsv: reserved bytes, all zero.

    Source of the semantics: ``atb::infer::AllToAllVV2Param``.

    Example:
        >>> import collops
        >>> collops.AllToAllVV2Param(rank_size=4, backend="shm").rank
        -1
    """

    rank: int = -1
    rank_size: int = 0
    rank_root: int = 0
    backend: str = "hccl"
    hccl_comm: Any = None
    comm_mode: int = CommMode.COMM_MULTI_PROCESS
    rank_table_file: str = ""
    comm_domain: str = ""
    rsv: bytes = field(default=RSV, repr=False)
