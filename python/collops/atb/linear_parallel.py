"""ATB's parameter struct of LinearParallel, as a dataclass."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from collops.atb.param import Param, known_names, member_of, struct_of

_RSV = bytes(52)


@known_names(two_dim_TP_info="two_dim_tp_info")
@dataclass(kw_only=True)
class LinearParallelParam(Param):
    """Configures LinearParallel: which ranks gather x, which add up, and how many rows each has.

    Args:
        trans_weight: whether the weight is [n, k]; otherwise it is [k, n].
        has_residual: whether there is a third input, [n] or [1, n], added once at the end.
        backend: the backend that runs the call; lccl, lcoc and mc2 stand for hccl.
        type: the collectives around the product, a `ParallelType` of 0 to 6.
        keep_intermediate: whether type 2 also returns the gathered x.
        quant_type: a `QuantType`: whether the weight is int8, and what has a scale of its own.
        quant_group_size: elements of k that share a row of scales, with QUANT_TYPE_PER_GROUP.
        out_data_type: the element type of the output, as an aclDataType: -1 or x's; where x is
            int8, 1 (float16) or 27 (bfloat16).
        two_dim_tp_info: the grid of type 4; also named `two_dim_TP_info`.
        moe_info: where the experts of types 5 and 6 are.
        gather_rows: rows of x on each member of this rank's gather group; empty: even.
        scatter_rows: rows of the output on each member of its scatter group; empty: even.
        sum_leaves: not 0: the sum over the ranks is cut in so many leaves, and its bits do not
            depend on the number of ranks, as `collops.collectives.products` says.
        sum_columns: k of each member of the scatter group; empty: the leaves are shared out evenly
            and are equally long.

    Source of the semantics: ``atb::infer::LinearParallelParam``, which lacks the last four.

    Example:
        >>> import collops
        >>> grid = collops.TwoDimTPInfo(ag_dim=2, rs_dim=2)
        >>> kind = collops.ParallelType.ALL_GATHER_LINEAR_REDUCE_SCATTER
        >>> collops.LinearParallelParam(rank_size=4, type=kind, two_dim_tp_info=grid).type.value
        4
    """

    class ParallelType(enum.IntEnum):
        """The collectives around the product; 5 and 6 have experts, MAX is refused.

        Example:
            >>> import collops
            >>> collops.ParallelType(2).name
            'ALL_GATHER_LINEAR'
        """

        UNDEFINED = -1
        LINEAR_ALL_REDUCE = 0
        LINEAR_REDUCE_SCATTER = 1
        ALL_GATHER_LINEAR = 2
        PURE_LINEAR = 3
        ALL_GATHER_LINEAR_REDUCE_SCATTER = 4
        ALLTOALLVC_ALL_GATHER_GMM = 5
        GMM_REDUCE_SCATTER_ALLTOALLVC = 6
        MAX = 7

    class QuantType(enum.IntEnum):
        """How the product is quantised, with ATB's numbers."""

        QUANT_TYPE_UNQUANT = -1
        QUANT_TYPE_UNDEFINED = -1
        QUANT_TYPE_PER_TENSOR = 0
        QUANT_TYPE_PER_CHANNEL = 1
        QUANT_TYPE_PER_GROUP = 2
        QUANT_TYPE_PER_TOKEN = 3
        QUANT_TYPE_MAX = 4

    @known_names()
    @dataclass(kw_only=True)
    class TwoDimTPInfo:
        """The grid of type 4: `ag_dim * rs_dim` ranks.

        Args:
            ag_dim: number of ranks in a gather group.
            rs_dim: number of ranks in a scatter group, which add up their products.
            inner_dim_is_ag: 1: the ranks of a gather group are neighbours; 0: of a scatter group.

        Example:
            >>> import collops
            >>> collops.TwoDimTPInfo(ag_dim=4, rs_dim=2).inner_dim_is_ag
            1
        """

        ag_dim: int = 0
        rs_dim: int = 0
        inner_dim_is_ag: int = 1

    @known_names(localExpertNums="local_expert_nums", epSize="ep_size", tpSize="tp_size")
    @dataclass(kw_only=True)
    class MoeInfo:
        """The parameters of ATB's two types with experts.

        Args:
            local_expert_nums: experts of a rank; also named `localExpertNums`.
            ep_size: ranks among which the experts are distributed; also named `epSize`.
            tp_size: ranks that share an expert; also named `tpSize`.

        Example:
            >>> import collops
            >>> collops.MoeInfo(epSize=4).ep_size
            4
        """

        local_expert_nums: int = 1
        ep_size: int = 1
        tp_size: int = 1

    _readers: ClassVar[dict[str, Callable[[Any], Any]]] = {
        **Param._readers,
        "type": member_of(ParallelType),
        "quant_type": member_of(QuantType),
        "two_dim_tp_info": struct_of(TwoDimTPInfo),
        "moe_info": struct_of(MoeInfo),
    }

    trans_weight: bool = True
    has_residual: bool = False
    type: int = ParallelType.LINEAR_ALL_REDUCE
    keep_intermediate: bool = False
    quant_type: int = QuantType.QUANT_TYPE_UNQUANT
    quant_group_size: int = 0
    out_data_type: int = -1
    two_dim_tp_info: TwoDimTPInfo = field(default_factory=TwoDimTPInfo)
    moe_info: MoeInfo = field(default_factory=MoeInfo)
    rsv: bytes = field(default=_RSV, repr=False)
    gather_rows: list[int] = field(default_factory=list)
    scatter_rows: list[int] = field(default_factory=list)
    sum_leaves: int = 0
    sum_columns: list[int] = field(default_factory=list)


ParallelType = LinearParallelParam.ParallelType
TwoDimTPInfo = LinearParallelParam.TwoDimTPInfo
MoeInfo = LinearParallelParam.MoeInfo

# torch_atb has these names at module level, too.
for _number in (*LinearParallelParam.ParallelType, *LinearParallelParam.QuantType):
    setattr(LinearParallelParam, _number.name, _number)
