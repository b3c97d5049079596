"""all_to_all_matmul and matmul_all_to_all: sums that are exact, on shapes of every kind."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from collops.golden.data import fill
from collops.golden.operators import matmul_all_to_all as golden

import collops
from tests.conformance.operator_runs import Outputs
from tests.conformance.runs import Run, as_real


class Exchanged(NamedTuple):
    """A product before or after an exchange, of whole numbers whose sums are exact.

    rows, k and n: of a rank's part of them, where the ranks share them.
    """

    first: bool  # the exchange is, as in all_to_all_matmul
    dtype: str
    ranks: int
    rows: int = 3
    k: int = 5
    n: int = 7
    trans: bool = False
    residual: int = 0  # its dims

    @property
    def id(self) -> str:
        return str(tuple(self))

    def tensors(self, rank: int) -> list[Any]:
        """x, the weight and the residual of a rank."""
        rows, k = (
            (self.rows * self.ranks, self.k * self.ranks) if self.first else (self.rows, self.k)
        )
        n = self.n if self.first else self.n * self.ranks
        shapes = [(rows, self.k), (n, k) if self.trans else (k, n)]
        shapes += [(1, self.n)[2 - self.residual :]] if self.residual else []
        return [whole(shape, self.dtype, rank, i) for i, shape in enumerate(shapes)]


@cache
def whole(shape: tuple[int, ...], dtype: str, rank: int, seed: int) -> Any:
    return fill(shape, dtype, rank, seed, "exact")


def cases(first: bool, run: Run) -> list[Exchanged]:
    one = Exchanged(first, "float32", run.ranks)
    dtypes = [one._replace(dtype=dtype) for dtype in ("float32", "float16", "bfloat16")]
    shapes = ((0, 2, 2), (1, 1, 1), (49, 70, 200))
    return [
        *(a._replace(rows=rows, k=k, n=n) for a in dtypes for rows, k, n in ((3, 5, 7), *shapes)),
        *(a._replace(residual=dims, rows=9) for a in dtypes for dims in (1, 2)),
        *(a._replace(trans=True, residual=1) for a in dtypes),
        one._replace(rows=0, residual=2, trans=True),
        one._replace(rows=4100, k=3, n=130),  # enough for several threads
    ]


@cache
def wanted(call: Exchanged, run: Run) -> Outputs:
    every = [call.tensors(rank) for rank in range(call.ranks)]
    lists = [list(one) for one in zip(*every, strict=True)]
    if call.first:
        return golden.all_to_all_matmul(*lists, trans_weight=call.trans)
    return [[y] for y in golden.matmul_all_to_all(*lists, trans_weight=call.trans)]


def multiply(comm: collops.Communicator, call: Exchanged, run: Run) -> list[Any]:
    """With memory for the result, and without."""
    given = [run.place(comm, as_real(one, call.dtype)) for one in call.tensors(comm.rank)]
    x, weight, *residual = given
    words: dict[str, Any] = {"trans_weight": call.trans}
    words |= {"residual": residual[0]} if residual else {}
    before = [run.values(tensor).tobytes() for tensor in given]
    method = comm.all_to_all_matmul if call.first else comm.matmul_all_to_all
    own = method(x, weight, **words)
    out = run.poisoned(comm, own.shape, x.dtype)
    assert method(x, weight, out=out, **words) is out
    assert own.dtype == x.dtype and own.tobytes() == out.tobytes()
    exchanged = []
    if call.first:
        again, got = comm.all_to_all_matmul(x, weight, return_x=True, **words)
        assert again.tobytes() == out.tobytes() and got.dtype == x.dtype
        exchanged = [got]
    assert [run.values(tensor).tobytes() for tensor in given] == before, "an input was changed"
    return [out, *exchanged]
