"""ATB's parameter struct of AllReduce."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from collops.atb.param import RSV, CommMode, Param
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
class AllReduceParam(Param):
    """Configures AllReduce.

    Args:
        rank: this rank; -1: from hccl_comm or the launcher.
        rank_size: number of ranks, at least 2.
        rank_root: a rank that all ranks agree on; results do not depend on it.
        all_reduce_type: ``"sum"``, ``"max"``, ``"min"`` or, not with lccl, ``"prod"``.
        backend: the backend that runs the call; COLLOPS_BACKEND may replace it.
        hccl_comm: a communicator to use: a Communicator, a handle (a number), or None.
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
    rsv: bytes = field(default=RSV, repr=False)
