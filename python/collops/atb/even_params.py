"""ATB's parameter structs of the collectives in which every rank has the same shape."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from collops.atb.param import _RSV, CommMode, Param
from collops.atb.spellings import known_names


class AllReduceQuantType(enum.IntEnum):
    """How an AllReduce is quantised, with ATB's numbers; only QUANT_TYPE_UNQUANT runs here."""

    QUANT_TYPE_UNQUANT = 0
    QUANT_TYPE_UNDEFINED = 0
    QUANT_TYPE_PER_TENSOR = 1
    QUANT_TYPE_PER_CHANNEL = 2
    QUANT_TYPE_MAX = 3


@known_names()
@dataclass(kw_only=True)
class AllGatherParam(Param):
    """Configures AllGather.

    Args:
        rank: this rank; -1: from hccl_comm, the rank table or the launcher.
        rank_size: number of ranks, at least 2.
        rank_root: the rank that the others meet at.
        backend: what the program was written for; COLLOPS_BACKEND may replace it.
        hccl_comm: a communicator of the caller's own (one of ours, or its `handle`), or None.
        comm_mode: whether ranks are processes or threads.
        rank_table_file: path of an HCCL rank table.
        comm_domain: the group's name, at most 128 characters.
        rsv: reserved bytes, all zero.

    Source of the semantics: ``atb::infer::AllGatherParam``.

    Example:
        >>> import collops
        >>> collops.AllGatherParam(rank=1, rank_size=4, backend="shm").rank_size
        4
    """

    rank: int = 0
    rank_size: int = 0
    rank_root: int = 0
    backend: str = "hccl"
    hccl_comm: Any = None
    comm_mode: int = CommMode.COMM_MULTI_PROCESS
    rank_table_file: str = ""
    comm_domain: str = ""
    rsv: bytes = field(default=_RSV, repr=False)


@known_names()
@dataclass(kw_only=True)
class ReduceScatterParam(Param):
    """Configures ReduceScatter.

    Args:
        rank: this rank; -1: from hccl_comm, the rank table or the launcher.
        rank_size: number of ranks, at least 2.
        rank_root: the rank that the others meet at.
        reduce_type: ``"sum"``, ``"max"``, ``"min"`` or, not with lccl, ``"prod"``.
        hccl_comm: a communicator of the caller's own (one of ours, or its `handle`), or None.
        comm_mode: whether ranks are processes or threads.
        backend: what the program was written for; lccl runs where hccl does.
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
    rsv: bytes = field(default=_RSV, repr=False)


@known_names()
@dataclass(kw_only=True)
class AllReduceParam(Param):
    """Configures AllReduce.

    Args:
        rank: this rank; -1: from hccl_comm, the rank table or the launcher.
        rank_size: number of ranks, at least 2.
        rank_root: the rank that the others meet at.
        all_reduce_type: ``"sum"``, ``"max"``, ``"min"`` or, not with lccl, ``"prod"``.
        backend: what the program was written for; COLLOPS_BACKEND may replace it.
        hccl_comm: a communicator of the caller's own (one of ours, or its `handle`), or None.
        comm_mode: whether ranks are processes or threads.
        rank_table_file: path of an HCCL rank table.
        comm_domain: the group's name, at most 128 characters.
        quant_type: one of AllReduceParam.QuantType; all but QUANT_TYPE_UNQUANT, 0, are refused.
        out_data_type: the element type of a quantised output, as an aclDataType; not read.
        rsv: reserved bytes, all zero.

    Source of the semantics: ``atb::infer::AllReduceParam``.

    Example:
        >>> import collops
        >>> collops.AllReduceParam(rank_size=2, all_reduce_type="min").all_reduce_type
        'min'
    """

    QuantType = AllReduceQuantType

    rank: int = 0
    rank_size: int = 0
    rank_root: int = 0
    all_reduce_type: str = "sum"
    backend: str = "hccl"
    hccl_comm: Any = None
    comm_mode: int = CommMode.COMM_MULTI_PROCESS
    rank_table_file: str = ""
    comm_domain: str = ""
    quant_type: int = 0
    out_data_type: int = -1
    rsv: bytes = field(default=_RSV, repr=False)


@known_names()
@dataclass(kw_only=True)
class BroadcastParam(Param):
    """Configures Broadcast.

    Args:
        rank: this rank; -1: from hccl_comm, the rank table or the launcher.
        rank_size: number of ranks, at least 2.
        rank_root: the rank whose x all others get.
        hccl_comm: a communicator of the caller's own (one of ours, or its `handle`), or None.
        comm_mode: whether ranks are processes or threads.
        backend: what the program was written for; COLLOPS_BACKEND may replace it.
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
    rsv: bytes = field(default=_RSV, repr=False)


@known_names()
@dataclass(kw_only=True)
class AllToAllParam(Param):
    """Configures AllToAll.

    Args:
        rank: this rank; -1: from hccl_comm, the rank table or the launcher.
        rank_size: number of ranks, at least 2.
        rank_root: the rank that the others meet at.
        backend: what the program was written for; lccl runs where hccl does.
        hccl_comm: a communicator of the caller's own (one of ours, or its `handle`), or None.
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
