"""ATB's parameter structs of the collectives and messages, each a dataclass."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from collops.atb.param import Param, known_names


@known_names()
@dataclass(kw_only=True)
class AllGatherParam(Param):
    """Configures AllGather.

    Source of the semantics: ``atb::infer::AllGatherParam``.

    Example:
        >>> import collops
        >>> collops.AllGatherParam(rank=1, rank_size=4, backend="shm").rank_size
        4
    """


@known_names()
@dataclass(kw_only=True)
class AllGatherVParam(Param):
    """Configures AllGatherV.

    Source of the semantics: ``atb::infer::AllGatherVParam``.

    Example:
        >>> import collops
        >>> collops.AllGatherVParam(rank=1, rank_size=4, backend="shm", comm_domain="dp").rank_size
        4
    """

    rank: int = -1


class AllReduceQuantType(enum.IntEnum):
    """How an AllReduce is quantised, with ATB's numbers: not, by one scale, by one per column."""

    QUANT_TYPE_UNQUANT = 0
    QUANT_TYPE_UNDEFINED = 0
    QUANT_TYPE_PER_TENSOR = 1
    QUANT_TYPE_PER_CHANNEL = 2
    QUANT_TYPE_MAX = 3


@known_names()
@dataclass(kw_only=True)
class AllReduceParam(Param):
    """Configures AllReduce.

    Args:
        all_reduce_type: ``"sum"``, ``"max"``, ``"min"`` or, not with lccl, ``"prod"``.
        quant_type: one of AllReduceParam.QuantType. With a scale x is int8, the output float16, and
            scale and offset are inputs behind x.
        out_data_type: the element type of a quantised output, as an aclDataType: 1, float16.

    Source of the semantics: ``atb::infer::AllReduceParam``.

    Example:
        >>> import collops
        >>> collops.AllReduceParam(rank_size=2, all_reduce_type="min").all_reduce_type
        'min'
    """

    QuantType = AllReduceQuantType

    all_reduce_type: str = "sum"
    quant_type: int = 0
    out_data_type: int = -1


@known_names()
@dataclass(kw_only=True)
class AllToAllParam(Param):
    """Configures AllToAll.

    Args:
        backend: the backend that runs the call; lccl stands for hccl.
        transpose: exchange blocks of columns, not of elements; not with hccl.

    Source of the semantics: ``atb::infer::AllToAllParam``.

    Example:
        >>> import collops
        >>> collops.AllToAllParam(rank_size=2, backend="lccl", transpose=True).transpose
        True
    """

    transpose: bool = False
    rsv: bytes = field(default=bytes(62), repr=False)


@known_names()
@dataclass(kw_only=True)
class AllToAllVParam(Param):
    """Configures AllToAllV.

    Args:
        send_counts: elements that go to each rank.
        sdispls: where each rank's slice begins in x, in elements.
        recv_counts: elements that come from each rank, not all 0.
        rdispls: where each rank's block begins in the output, in elements.

    Source of the semantics: ``atb::infer::AllToAllVParam``.

    Example:
        >>> import collops
        >>> param = collops.AllToAllVParam(rank_size=2, send_counts=[3, 1], sdispls=[0, 3])
        >>> param.send_counts, param.recv_counts
        ([3, 1], [])
    """

    send_counts: list[int] = field(default_factory=list)
    sdispls: list[int] = field(default_factory=list)
    recv_counts: list[int] = field(default_factory=list)
    rdispls: list[int] = field(default_factory=list)


@known_names()
@dataclass(kw_only=True)
class AllToAllVV2Param(Param):
    """Configures AllToAllVV2: AllToAllV with counts and displacements as input tensors.

    Source of the semantics: ``atb::infer::AllToAllVV2Param``.

    Example:
        >>> import collops
        >>> collops.AllToAllVV2Param(rank_size=4, backend="shm").rank
        -1
    """

    rank: int = -1


@known_names()
@dataclass(kw_only=True)
class BroadcastParam(Param):
    """Configures Broadcast.

    Args:
        rank_root: the rank whose x all others get.

    Source of the semantics: ``atb::infer::BroadcastParam``.

    Example:
        >>> import collops
        >>> collops.BroadcastParam(rank_size=4, rank_root=3).rank_root
        3
    """


@known_names()
@dataclass(kw_only=True)
class ReduceScatterParam(Param):
    """Configures ReduceScatter.

    Args:
        reduce_type: ``"sum"``, ``"max"``, ``"min"`` or, not with lccl, ``"prod"``.
        backend: the backend that runs the call; lccl stands for hccl.

    Source of the semantics: ``atb::infer::ReduceScatterParam``.

    Example:
        >>> import collops
        >>> collops.ReduceScatterParam(rank_size=2, reduce_type="max").backend
        'lccl'
    """

    reduce_type: str = "sum"
    backend: str = "lccl"


@known_names()
@dataclass(kw_only=True)
class ReduceScatterVParam(Param):
    """Configures ReduceScatterV.

    Args:
        send_counts: not read, as in ATB; the input tensor of that name is.
        sdispls: not read, as in ATB.
        recv_count: not read, as in ATB.
        reduce_type: ``"sum"``, ``"max"`` or ``"min"``.

    Source of the semantics: ``atb::infer::ReduceScatterVParam``.

    Example:
        >>> import collops
        >>> collops.ReduceScatterVParam(rank=0, rank_size=2, reduce_type="max").reduce_type
        'max'
    """

    send_counts: list[int] = field(default_factory=list)
    sdispls: list[int] = field(default_factory=list)
    recv_count: int = 0
    reduce_type: str = "sum"


@known_names()
@dataclass(kw_only=True)
class SendParam(Param):
    """Configures Send.

    Args:
        rank_root: a rank; a message does not depend on it.
        dest_rank: the rank that receives; not this rank itself.

    Source of the semantics: ``atb::infer::SendParam``.

    Example:
        >>> import collops
        >>> collops.SendParam(rank=0, rank_size=4, dest_rank=3, backend="shm").dest_rank
        3
    """

    dest_rank: int = 1


@known_names()
@dataclass(kw_only=True)
class RecvParam(Param):
    """Configures Recv.

    Args:
        rank_root: a rank; a message does not depend on it.
        src_rank: the rank that sends; not this rank itself.

    Source of the semantics: ``atb::infer::RecvParam``.

    Example:
        >>> import collops
        >>> collops.RecvParam(rank=3, rank_size=4, src_rank=0, backend="shm").src_rank
        0
    """

    src_rank: int = 1
