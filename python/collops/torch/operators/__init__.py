"""Operators that torch.compile keeps and autograd goes through: ``torch.ops.collops``.

Importing this module registers them.
"""

from __future__ import annotations

from collops.torch.operators import product_operators, row_operators
from collops.torch.operators.products import (
    all_gather_matmul,
    all_gather_matmul_reduce_scatter,
    matmul_all_reduce,
    matmul_reduce_scatter,
)
from collops.torch.operators.rows import all_gatherv, all_reduce, all_to_allv, reduce_scatterv

__all__ = [
    "all_gather_matmul",
    "all_gather_matmul_reduce_scatter",
    "all_gatherv",
    "all_reduce",
    "all_to_allv",
    "matmul_all_reduce",
    "matmul_reduce_scatter",
    "product_operators",
    "reduce_scatterv",
    "row_operators",
]
