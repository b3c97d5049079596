"""Even, the common part of the operators in which every rank's x has the same shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from ..data.dtypes import Array
from .case import Case
from .operator import Inputs, Params, xs_of
from .output_layout import OutputLayout, gather_layout, scatter_layout

# Counts and displacements from a number of ranks, the elements of x, and a root.
Places = Callable[[int, int, int], tuple[list[int], list[int]]]


def equal_blocks(rank_size: int, count: int, root: int = 0) -> tuple[list[int], list[int]]:
    """Return counts and displacements of a block of `count` elements per rank, packed.

    Example:
        >>> equal_blocks(2, 6)
        ([6, 6], [0, 6])
    """
    return [count] * rank_size, [count * r for r in range(rank_size)]


def equal_parts(rank_size: int, count: int, root: int = 0) -> tuple[list[int], list[int]]:
    """Return counts and displacements of `count` elements in equal parts.

    Example:
        >>> equal_parts(2, 6)
        ([3, 3], [0, 3])
    """
    return equal_blocks(rank_size, count // rank_size)


@dataclass(frozen=True)
class Even:
    """An operator in which every rank's x has the same shape.

    `places` are counts and displacements of the V operator that does the same: an all_gather_v, or
    a reduce_scatter_v where OpParam has a reduction, whose key is `reduction`; of all_to_all what a
    rank receives from each. `rows` are those of an output, by the number of ranks and x's shape.

    Example:
        >>> Even("all_gather", equal_blocks, lambda size, shape: size).case(2, "tiny", (3,)).displs
        (0, 3)
    """

    name: str
    places: Places
    rows: Callable[[int, tuple[int, ...]], int]
    reduction: str = ""

    def case(
        self,
        size: int,
        name: str,
        shape: tuple[int, ...],
        dtype: str = "int8",
        *,
        op: str = "",
        kind: str = "index",
        root: int = 0,
        transpose: bool = False,
        seed: int = 0,
    ) -> Case:
        """Return a case in which x of every rank has this shape."""
        counts, displs = self.places(size, prod(shape), root)
        rows = size * shape[0] if transpose else self.rows(size, shape)
        return Case(
            operator=self.name,
            name=name,
            rank_size=size,
            dtype=dtype,
            counts=tuple(counts),
            displs=tuple(displs),
            x_shapes=(shape,) * size,
            rows=(rows,) * size,
            op=op,
            kind=kind,
            seed=seed,
            root=root,
            transpose=transpose,
        )

    def op(self, params: Params) -> str:
        """Return the reduction that OpParam names."""
        return str(params.get(self.reduction, "sum"))

    def op_param(self, case: Case) -> dict[str, str]:
        """Return what OpParam says of a case's reduction."""
        return {self.reduction: case.op}

    def layout(self, params: Params, inputs: Inputs) -> OutputLayout:
        """Return where each rank's elements lie in the outputs."""
        xs = xs_of(inputs)
        root = int(params.get("rankRoot", 0))
        counts, displs = self.places(len(xs), xs[0].size, root)
        if self.reduction:
            return scatter_layout(xs, counts, displs, self.op(params))
        return gather_layout(counts, displs, outputs=len(xs))


def check_alike(operator: str, xs: Sequence[Array]) -> None:
    """Raise ValueError unless every rank's x has the same shape and dtype.

    Example:
        >>> import numpy as np
        >>> check_alike("all_gather", [np.zeros(2), np.ones(2)])
    """
    for r, x in enumerate(xs):
        if x.shape != xs[0].shape or x.dtype != xs[0].dtype:
            raise ValueError(
                f"{operator}: xs[{r}] is {x.shape} {x.dtype}, xs[0] is {xs[0].shape} {xs[0].dtype}"
            )
