"""Reference of LinearParallel's types 5 and 6: rows to the ranks of their experts, and back.

Expert e of all lies on the tp ranks of ep rank `e // local_experts`, which are `ep * tp + 0..tp-1`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from ...data.dtypes import Array, name_of, rounded, storage, widened
from .groups import ALL_TO_ALL_EXPERTS, LinearParallel
from .quantised import Multiply, Scales, float_product, quantised_product
from .reference import output_dtype

Tokens = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Segment:
    """Rows of one source for one expert of a rank, in the order in which the rank has them.

    `source_row` is the first in the source's rows, `row` the first in those of the expert's rank.

    Example:
        >>> Segment(expert=1, source=0, source_row=4, row=2, rows=3).rows
        3
    """

    expert: int
    source: int
    source_row: int
    row: int
    rows: int


def segments(call: LinearParallel, tokens: Tokens, rank: int) -> list[Segment]:
    """Return what a rank receives: by expert, then by source rank, in each source's own order.

    `tokens[s, e]` are the rows that every rank of ep rank s has for expert e of all; each source
    has its rows sorted by expert.

    Raises:
        ValueError: the matrix is not [ep, ep * local experts], or has a number below 0.

    Example:
        >>> found = segments(LinearParallel(5, 2, ep_size=2), np.array([[1, 2], [3, 4]]), 1)
        >>> [(one.source, one.source_row, one.rows) for one in found]
        [(0, 1, 2), (1, 3, 4)]
    """
    _check_tokens(call, tokens)
    ends = [list(accumulate(map(int, own), initial=0)) for own in tokens]
    found, row = [], 0
    for local in range(call.local_experts):
        expert = rank // call.tp_size * call.local_experts + local
        for source in range(call.rank_size):
            own = ends[source // call.tp_size]
            count = own[expert + 1] - own[expert]
            found.append(Segment(local, source, own[expert], row, count))
            row += count
    return found


def received_rows(call: LinearParallel, tokens: Tokens, rank: int) -> int:
    """Return how many rows the experts of a rank have.

    Example:
        >>> received_rows(LinearParallel(5, 4, ep_size=2, tp_size=2), np.array([[1, 2], [3, 4]]), 1)
        8
    """
    return sum(segment.rows for segment in segments(call, tokens, rank))


def sent_rows(call: LinearParallel, tokens: Tokens, rank: int) -> int:
    """Return how many rows a rank has for all experts.

    Example:
        >>> sent_rows(LinearParallel(5, 2, ep_size=2), np.array([[1, 2], [3, 4]]), 1)
        7
    """
    return sum(map(int, tokens[rank // call.tp_size]))


def experts(
    call: LinearParallel,
    xs: Sequence[Array],
    weights: Sequence[Array],
    tokens: Tokens,
    rows: Sequence[int] | None = None,
    residuals: Sequence[Array] = (),
    scales: Sequence[Scales] = (),
) -> list[Array]:
    """Return the output of types 5 and 6, per rank.

    Type 5: `output_r = (row of expert l) @ W_r[l] + residual_r`, for all rows that r receives, in
    the order of `segments`. Type 6 is the way back: x has that order, and each product goes to its
    source, to the place that it has there; those of the tp ranks of an expert are added in rank
    order, then the residual of the rank that owns the output. Products are float32 and are rounded
    once. Rows behind these are 0, without the residual.

    Args:
        call: the parameters.
        xs: x of every rank, [rows, k]; more rows than tokens are not read.
        weights: weight of every rank, [local experts, n, k] if trans_weight, otherwise
            [local experts, k, n].
        tokens: [ep, ep * local experts], the rows of each source for each expert.
        rows: rows of every rank's output; None: as many as there are.
        residuals: residual of every rank, [n] or [1, n]; none without a residual.
        scales: of every rank, with a scale for each column of each expert; none without.

    Returns:
        [rows, n] per rank, of call.out_dtype where x is int8.

    Raises:
        ValueError: tensors that do not fit; a rank with more rows than its x, or than its output.

    Example:
        >>> call = LinearParallel(5, 2, trans_weight=False, ep_size=2)
        >>> xs = [np.array([[1], [2]], np.float32), np.array([[3], [4], [5]], np.float32)]
        >>> weights = [np.array([[[10]]], np.float32), np.array([[[100]]], np.float32)]
        >>> tokens = np.array([[1, 1], [2, 1]])
        >>> from dataclasses import replace
        >>> there = experts(call, xs, weights, tokens)
        >>> [y.reshape(-1).tolist() for y in there]
        [[10.0, 30.0, 40.0], [200.0, 500.0]]
        >>> ones = [np.ones((1, 1, 1), np.float32)] * 2
        >>> back = experts(replace(call, type=6), there, ones, tokens, rows=[4, 3])
        >>> [y.reshape(-1).tolist() for y in back]
        [[10.0, 200.0, 0.0, 0.0], [30.0, 40.0, 500.0]]
    """
    check_experts(call, xs, weights, tokens, rows)
    totals = expert_totals(call, tokens, expert_product(call, xs, weights, scales))
    return finished(call, totals, name_of(xs[0]), rows, residuals)


def finished(
    call: LinearParallel,
    totals: Sequence[Array],
    x_dtype: str,
    rows: Sequence[int] | None,
    residuals: Sequence[Array],
) -> list[Array]:
    """Return the outputs of experts from their rows in float32.

    Example:
        >>> total = np.ones((1, 2), np.float32)
        >>> [y.tolist() for y in finished(LinearParallel(5, 1), [total], "float16", [2], [])]
        [[[1.0, 1.0], [0.0, 0.0]]]
    """
    dtype = output_dtype(call, x_dtype)
    outputs = []
    for r, total in enumerate(totals):
        if residuals:
            total = total + widened(residuals[r], dtype).reshape(1, -1)
        height = len(total) if rows is None else rows[r]
        output = np.zeros((height, total.shape[1]), storage(dtype))
        output[: len(total)] = rounded(total, dtype)
        outputs.append(output)
    return outputs


def expert_totals(
    call: LinearParallel,
    tokens: Tokens,
    product: Callable[[int, Segment], Array],
    layout: Sequence[Sequence[Segment]] | None = None,
) -> list[Array]:
    """Return the rows of every rank's output, before a residual and the rounding.

    Args:
        call, tokens: as in experts.
        product: the products of a rank for one of its segments.
        layout: the segments of every rank, if they lie otherwise.

    Example:
        >>> call = LinearParallel(6, 1, local_experts=2)
        >>> ones = lambda rank, one: np.full((one.rows, 1), one.expert)
        >>> [y.tolist() for y in expert_totals(call, np.array([[2, 1]]), ones)]
        [[[0], [0], [1]]]
    """
    ranks = range(call.rank_size)
    layout = layout or [segments(call, tokens, r) for r in ranks]
    products = [np.concatenate([product(r, one) for one in layout[r]]) for r in ranks]
    if call.type == ALL_TO_ALL_EXPERTS:
        return products
    shape = products[0].shape[1:]
    totals = [np.zeros((sent_rows(call, tokens, r), *shape), products[0].dtype) for r in ranks]
    for first in range(0, call.rank_size, call.tp_size):
        total = products[first].copy()
        with np.errstate(all="ignore"):
            for other in products[first + 1 : first + call.tp_size]:
                total += other
        for one in layout[first]:
            rows = total[one.row : one.row + one.rows]
            totals[one.source][one.source_row : one.source_row + one.rows] = rows
    return totals


def expert_product(
    call: LinearParallel,
    xs: Sequence[Array],
    weights: Sequence[Array],
    scales: Sequence[Scales],
    multiply: Multiply = quantised_product,
) -> Callable[[int, Segment], Array]:
    """Return what makes the products of a rank's segment in float32; `multiply`: if quantised.

    Example:
        >>> x, weight = np.ones((2, 3), np.float32), np.ones((1, 4, 3), np.float32)
        >>> make = expert_product(LinearParallel(6, 1), [x], [weight], [])
        >>> make(0, Segment(expert=0, source=0, source_row=0, row=1, rows=1)).tolist()
        [[3.0, 3.0, 3.0, 3.0]]
    """

    def product(rank: int, one: Segment) -> Array:
        holder, rows = rows_of_segment(call, rank, one)
        factor = weights[rank][one.expert]
        factor = factor.T if call.trans_weight else factor
        x = xs[holder][rows]
        if not scales:
            dtype = name_of(x)
            return float_product(widened(x, dtype), widened(factor, dtype))
        token = scales[holder].token_scale
        here = Scales(
            scales[rank].scale.reshape(call.local_experts, -1)[one.expert],
            token_scale=None if token is None else token.reshape(-1)[rows],
        )
        return multiply(x, factor, here, call.quant_type, 0, float_product)

    return product


def rows_of_segment(call: LinearParallel, rank: int, one: Segment) -> tuple[int, slice]:
    """Return the rank whose x has the rows of a rank's segment, and the rows.

    Example:
        >>> one = Segment(expert=0, source=1, source_row=4, row=2, rows=3)
        >>> [rows_of_segment(LinearParallel(kind, 2), 0, one) for kind in (5, 6)]
        [(1, slice(4, 7, None)), (0, slice(2, 5, None))]
    """
    is_first = call.type == ALL_TO_ALL_EXPERTS
    holder, first = (one.source, one.source_row) if is_first else (rank, one.row)
    return holder, slice(first, first + one.rows)


def _check_tokens(call: LinearParallel, tokens: Tokens) -> None:
    if call.ep_size * call.tp_size != call.rank_size:
        raise ValueError(
            f"linear_parallel: epSize {call.ep_size} * tpSize {call.tp_size} must be rankSize "
            f"{call.rank_size}"
        )
    wanted = (call.ep_size, call.ep_size * call.local_experts)
    if tokens.shape != wanted:
        got = list(tokens.shape)
        raise ValueError(f"linear_parallel: tokens are {got}, expected {list(wanted)}")
    if tokens.size and tokens.min() < 0:
        raise ValueError(f"linear_parallel: tokens must be >= 0, got {tokens.min()}")


def check_experts(
    call: LinearParallel,
    xs: Sequence[Array],
    weights: Sequence[Array],
    tokens: Tokens,
    rows: Sequence[int] | None,
) -> None:
    """Raise ValueError where a tensor does not fit, or rows would be dropped.

    Example:
        >>> x, weight = np.ones((1, 2)), np.ones((1, 2, 2))
        >>> check_experts(LinearParallel(5, 1), [x], [weight], np.array([[2]]), None)
        Traceback (most recent call last):
        ...
        ValueError: linear_parallel: rank 0 has 2 rows, its x 1
    """
    if call.sum_leaves or call.sum_columns:
        raise ValueError(f"linear_parallel: type {call.type} has no sumLeaves")
    is_first, k = call.type == ALL_TO_ALL_EXPERTS, xs[0].shape[-1]
    for r, (x, weight) in enumerate(zip(xs, weights, strict=True)):
        inner = weight.shape[-1 if call.trans_weight else -2] if weight.ndim == 3 else -1
        if x.ndim != 2 or x.shape[1] != k:
            raise ValueError(f"linear_parallel: x of rank {r} is {list(x.shape)}")
        if weight.ndim != 3 or (len(weight), inner) != (call.local_experts, k):
            words = "n, k" if call.trans_weight else "k, n"
            raise ValueError(
                f"linear_parallel: weight of rank {r} is {list(weight.shape)}, expected "
                f"[{call.local_experts}, {words}] with k {k}"
            )
        sent, received = sent_rows(call, tokens, r), received_rows(call, tokens, r)
        given, put = (sent, received) if is_first else (received, sent)
        for name, rows_needed, limit in (
            ("x", given, len(x)),
            ("output", put, put if rows is None else rows[r]),
        ):
            if rows_needed > limit:
                raise ValueError(
                    f"linear_parallel: rank {r} has {rows_needed} rows, its {name} {limit}"
                )
