"""Operators that torch.compile keeps and autograd goes through: ``torch.ops.collops``.

Importing this module registers them.
"""

from __future__ import annotations

from collops.torch.operators import expert_operators, product_operators, row_operators
from collops.torch.operators.experts import (
    MoeRouting,
    all_to_allv_grouped_matmul,
    grouped_matmul_all_to_allv,
    moe_combine,
    moe_dispatch,
)
from collops.torch.operators.products import (
    all_gather_matmul,
    all_gather_matmul_reduce_scatter,
    all_to_all_matmul,
    matmul,
    matmul_all_reduce,
    matmul_all_to_all,
    matmul_reduce_scatter,
)
from collops.torch.operators.rows import all_gatherv, all_reduce, all_to_allv, reduce_scatterv

__all__ = [
    "MoeRouting",
    "all_gather_matmul",
    "all_gather_matmul_reduce_scatter",
    "all_gatherv",
    "all_reduce",
    "all_to_all_matmul",
    "all_to_allv",
    "all_to_allv_grouped_matmul",
    "expert_operators",
    "grouped_matmul_all_to_allv",
    "matmul",
    "matmul_all_reduce",
    "matmul_all_to_all",
    "matmul_reduce_scatter",
    "moe_combine",
    "moe_dispatch",
    "product_operators",
    "reduce_scatterv",
    "row_operators",
]
