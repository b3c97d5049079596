"""numpy's product, by the BLAS that it was built with: OpenBLAS in its wheels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collops.bench.variant import Column

if TYPE_CHECKING:
    from collops.bench.operators.linear_parallel.variants import OwnColumns


def numpy_alone(own: OwnColumns) -> Column:
    """The product by numpy and its BLAS, on all ranks at once; float32 alone is worth it."""
    m, k, n = own.point.shape
    x, product = own.element.matrix(m, k), own.element.matrix(m, n)
    own.element.fill(x, (1, own.work.rank), 2 / 3)
    a, b, out = x.view(np.float32), own.weight.view(np.float32).T, product.view(np.float32)
    return Column("numpy", "numpy.matmul alone", [("gemm", lambda: np.matmul(a, b, out=out))], x)
