"""Patterns of errors of a reduction: another reduction, a rank left out or taken twice, and others.

Each is a hypothesis: a name, and a function that computes what an output would be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

import numpy as np

from ..data.deviation import absolute_error
from ..data.dtypes import Array, differs
from ..data.reduction import REDUCE_OPS, has_reduction, reduce_ranks
from .evidence import ENOUGH_BITS, Diagnosis, Evidence, bits_per_match

# Makes an output from the reduced arrays, one per rank, of equal size.
Make = Callable[[Sequence[Array]], Array]


@dataclass(frozen=True)
class Hypothesis:
    """What went wrong in a reduction, in words, and what the output would be.

    `rank` is the rank that is missing or repeated, None in the other kinds.

    Example:
        >>> Hypothesis("missing rank", "left out", lambda parts: parts[0], rank=1).title()
        'missing rank 1'
    """

    kind: str
    text: str
    make: Make
    rank: int | None = None

    def title(self) -> str:
        """Return the kind, with its rank."""
        return self.kind if self.rank is None else f"{self.kind} {self.rank}"


def reduction_hypotheses(op: str, ranks: int, dtype: str) -> Iterator[Hypothesis]:
    """Yield all that golden knows to go wrong in a reduction by `op`.

    Example:
        >>> [one.text for one in reduction_hypotheses("sum", 2, "float16")][:2]
        ['its elements were left out of the sum', 'its elements were left out of the sum']
    """
    for rank in range(ranks):
        text = f"its elements were left out of the {op}"
        yield Hypothesis("missing rank", text, partial(_without, rank, op, dtype), rank)
        if op == "avg":
            yield Hypothesis("missing rank", text, partial(_with_zeros, rank, op, dtype), rank)
    for rank in range(ranks):
        text = f"its elements are twice in the {op}"
        yield Hypothesis("repeated rank", text, partial(_twice, rank, op, dtype), rank)
        if op == "avg":
            text = f"its elements are twice in the sum, which was divided by {ranks}"
            twice = partial(_twice_of_all, rank, ranks, dtype)
            yield Hypothesis("repeated rank", text, twice, rank)
    for other in REDUCE_OPS:
        if other != op and has_reduction(other, dtype):
            text = f"{other} in place of {op}"
            yield Hypothesis("wrong reduction", text, partial(reduce_ranks, op=other, dtype=dtype))
    for rank in range(ranks):
        text = f"nothing was reduced: the elements are those of rank {rank}"
        yield Hypothesis("wrong reduction", text, itemgetter(rank))
    if dtype in ("float16", "bfloat16") and op in ("sum", "avg", "prod"):
        text = f"the {op} was accumulated in {dtype}, not in float32"
        yield Hypothesis("rounding", text, partial(_rounded_each_time, op, dtype))


def wrong_reduction(evidence: Evidence) -> Diagnosis | None:
    """Explain wrong outputs by a hypothesis about their reduction, or return None.

    Example:
        >>> from ..operators.output_layout import scatter_layout
        >>> xs = [np.array([1.5, 2, 3, 4], np.float32) * 3**rank for rank in range(3)]
        >>> layout = scatter_layout(xs, [4], [0], "sum")
        >>> a, b = xs[0] + xs[2], xs[0] + xs[1] + xs[2]
        >>> parts = Evidence([a], [b], [a != b], "float32", [None], layout, ["rank 0"])
        >>> wrong_reduction(parts).text
        'missing rank 1: its elements were left out of the sum in rank 0'
    """
    layout, outputs = evidence.layout, evidence.bad_outputs()
    if not layout.parts or len(layout.parts[0]) < 2:
        return None
    known = list(reduction_hypotheses(layout.op, len(layout.parts[0]), evidence.dtype))
    for one in known:
        found = {output: _bits(evidence, output, one.make) for output in outputs}
        bits = sum(found[output] for output in evidence.distinct)
        if min(found.values()) > 0 and bits >= ENOUGH_BITS + math.log2(len(known)):
            where = evidence.where(outputs)
            return Diagnosis(one.kind, f"{one.title()}: {one.text} in {where}")
    return None


def _without(rank: int, op: str, dtype: str, parts: Sequence[Array]) -> Array:
    return reduce_ranks([*parts[:rank], *parts[rank + 1 :]], op, dtype)


def _with_zeros(rank: int, op: str, dtype: str, parts: Sequence[Array]) -> Array:
    """Return an average without a rank that is divided by all ranks."""
    nothing = np.zeros_like(parts[rank])
    return reduce_ranks([*parts[:rank], nothing, *parts[rank + 1 :]], op, dtype)


def _twice(rank: int, op: str, dtype: str, parts: Sequence[Array]) -> Array:
    return reduce_ranks([*parts[: rank + 1], *parts[rank:]], op, dtype)


def _twice_of_all(rank: int, ranks: int, dtype: str, parts: Sequence[Array]) -> Array:
    """Return a sum that has a rank twice, divided by the number of ranks."""
    total = _twice(rank, "sum", dtype, parts)
    nothing = [np.zeros_like(total)] * (ranks - 1)
    return reduce_ranks([total, *nothing], "avg", dtype)


def _rounded_each_time(op: str, dtype: str, parts: Sequence[Array]) -> Array:
    """Return a reduction that is rounded to its dtype after every step."""
    step = "sum" if op == "avg" else op
    total = parts[0]
    for part in parts[1:]:
        total = reduce_ranks([total, part], step, dtype)
    if op == "avg":
        total = reduce_ranks([total, *[np.zeros_like(total)] * (len(parts) - 1)], "avg", dtype)
    return total


def _bits(evidence: Evidence, output: int, make: Make) -> float:
    """Return the evidence that an output is what a hypothesis makes of it; 0 if it is not."""
    parts = evidence.layout.parts[output]
    wrong = evidence.wrong(output)
    if not wrong.size or wrong[-1] >= parts[0].size:
        return 0.0
    limit = evidence.limits[output]
    got = evidence.got[output].reshape(-1)
    for chosen in (wrong[:256], np.arange(parts[0].size)):
        near = None if limit is None else limit.reshape(-1)[chosen]
        if not _equal(got[chosen], make([part[chosen] for part in parts]), evidence.dtype, near):
            return 0.0
    return wrong.size * bits_per_match(evidence.expected[output], evidence.dtype, limit)


def _equal(got: Array, expected: Array, dtype: str, limit: Array | None) -> bool:
    unequal = differs(got, expected, dtype)
    if limit is not None:
        unequal &= ~(absolute_error(got, expected, dtype) <= limit)
    return not unequal.any()
