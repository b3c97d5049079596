"""Case: one call of one operator on all ranks, for tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .linear_parallel.groups import LinearParallel


@dataclass(frozen=True)
class Case:
    """One call of an operator on all its ranks; equal cases give equal tensors.

    `counts` and `displs` are in elements, one per rank: recvCounts and rdispls of all_gather_v,
    sendCounts and sdispls of reduce_scatter_v. `rows` are the rows of each rank's output, the
    length of its y. `op` is the reduction, "" where there is none. `kind` and `seed` choose x (see
    data.fill). linear_parallel has its parameters in `linear` and n in `columns`, and no counts.
    The operators of `even` have the counts of the V operator that does the same; `root` is
    broadcast's, `transpose` all_to_all's. all_to_all_v and all_to_all_v_v2 have P x P counts,
    displs and rdispls, the lines of the tables of `exchange.Exchange` one after the other
    (sendCounts, sdispls, rdispls of rank 0, of rank 1, ...), and `rows` are the elements that each
    rank receives. Messages, of send and recv, go from `root` to `peer`.
    With experts `counts` are the matrix of tokens, line by line. `quant_type` is that of a
    quantised all_reduce.

    Example:
        >>> case = Case("all_gather_v", "tiny", 2, "int8", (2, 1), (0, 2), ((2,), (1,)), (3, 3))
        >>> case.id
        'all_gather_v.p2.tiny'
    """

    operator: str
    name: str
    rank_size: int
    dtype: str
    counts: tuple[int, ...]
    displs: tuple[int, ...]
    x_shapes: tuple[tuple[int, ...], ...]
    rows: tuple[int, ...]
    op: str = ""
    kind: str = "index"
    seed: int = 0
    linear: LinearParallel | None = None
    columns: int = 0
    root: int = 0
    peer: int = 0
    transpose: bool = False
    rdispls: tuple[int, ...] = ()
    quant_type: int = 0

    @property
    def id(self) -> str:
        """Name that is unique among all cases and fit for a file."""
        return f"{self.operator}.p{self.rank_size}.{self.name}"

    @property
    def output_dtype(self) -> str:
        """Name of the first output's dtype; `dtype` is x's."""
        if self.quant_type:
            return "float16"
        return self.linear.out_dtype if self.linear and self.dtype == "int8" else self.dtype


def rows_of(count: int, row: Sequence[int]) -> int:
    """Return how many rows of shape `row` hold `count` elements; the last may be cut.

    Example:
        >>> rows_of(9, (2, 2)), rows_of(0, (4,)), rows_of(5, ())
        (3, 0, 5)
    """
    return -(-count // math.prod(row))
