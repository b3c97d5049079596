"""Operators that torch.compile keeps and autograd goes through: ``torch.ops.collops``.

Importing this module registers them: schemas and calls (definitions), shapes (fakes), gradients.
"""

from __future__ import annotations

from collops.torch.operators import fakes, gradients
from collops.torch.operators.order import keep_order
from collops.torch.operators.products import (
    all_gather_matmul,
    all_gather_matmul_reduce_scatter,
    matmul_all_reduce,
    matmul_reduce_scatter,
)
from collops.torch.operators.rows import all_gatherv, all_reduce, all_to_allv, reduce_scatterv

keep_order()

__all__ = [
    "all_gather_matmul",
    "all_gather_matmul_reduce_scatter",
    "all_gatherv",
    "all_reduce",
    "all_to_allv",
    "fakes",
    "gradients",
    "matmul_all_reduce",
    "matmul_reduce_scatter",
    "reduce_scatterv",
]
