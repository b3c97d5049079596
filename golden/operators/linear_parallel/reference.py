"""Reference of LinearParallel: rows gathered, multiplied by a weight, added up and scattered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ...data.dtypes import Array, name_of, rounded, widened
from ...data.leaves import leaf_product, tree_sum
from .groups import REDUCE_SCATTER, LinearParallel, block_of, leaf_borders, place
from .quantised import (
    Multiply,
    Product,
    Scales,
    Single,
    float_product,
    quantised_leaf,
    quantised_product,
)


def linear_parallel(
    call: LinearParallel,
    xs: Sequence[Array],
    weights: Sequence[Array],
    residuals: Sequence[Array] = (),
    *,
    scales: Sequence[Scales] = (),
) -> list[list[Array]]:
    """Return the outputs of LinearParallel, per rank.

    `G_r = rows of x over the gather group; T_r = G_r @ W_r; S_r = sum of T over the reduce group;
    output_r = own row block of S_r + residual_r`. Partial products are float32, their sum goes in
    rank order and is rounded to the dtype once, at the end. With scales T_r is
    `quantised.quantised_product`; scales per token are gathered with their rows. With leaves S_r
    is the tree's sum of all leaves of the group, each of which is dequantised before; this fixes
    every bit, also of a sum that is not exact.

    Args:
        call: the parameters.
        xs: x of every rank, [m, k] or [b, m, k]; bfloat16 as uint16 bits.
        weights: weight of every rank, [n, k] if trans_weight, otherwise [k, n].
        residuals: residual of every rank, [n] or [1, n]; none without a residual.
        scales: what each rank's quantised product has beside x and weight; none without.

    Returns:
        Per rank the output, of call.out_dtype where x is int8, and with keep_intermediate the
        gathered x after it.

    Raises:
        ValueError: the tensors or rows do not fit together.

    Example:
        >>> from .groups import ALL_GATHER
        >>> xs = [np.array([[1, 2]], np.float32), np.array([[3, 4]], np.float32)]
        >>> weights = [np.array([[1, 0]], np.float32), np.array([[0, 1]], np.float32)]
        >>> [y.tolist() for [y] in linear_parallel(LinearParallel(ALL_GATHER, 2), xs, weights)]
        [[[1.0], [3.0]], [[2.0], [4.0]]]
    """
    _check_tensors(call, xs, weights, residuals)
    parts = [parts_of(call, r, xs, weights, scales) for r in range(call.rank_size)]
    return reduced(call, parts, xs, residuals)


def reduced(
    call: LinearParallel,
    parts: Sequence[Sequence[Single]],
    xs: Sequence[Array],
    residuals: Sequence[Array] = (),
) -> list[list[Array]]:
    """Return the outputs of linear_parallel from the parts of the sum S that every rank has.

    Example:
        >>> xs, parts = [np.ones((2, 1), np.float16)] * 2, [[np.ones((2, 1), np.float32)]] * 2
        >>> [y.tolist() for [y] in reduced(LinearParallel(1, 2), parts, xs)]
        [[[2.0]], [[2.0]]]
    """
    groups = [place(call, r).reduced for r in range(call.rank_size)]
    add = tree_sum if call.sum_leaves else _sum_in_order
    totals = {group: add([part for q in group for part in parts[q]]) for group in set(groups)}
    out_dtype = output_dtype(call, name_of(xs[0]))
    outputs: list[list[Array]] = []
    for r, group in enumerate(groups):
        first, end, shape = output_block(call, r, [x.shape for x in xs])
        own = totals[group][first:end].copy()
        if residuals:
            own = own + widened(residuals[r], out_dtype).reshape(1, -1)
        outputs.append([rounded(own, out_dtype).reshape(*shape, own.shape[1])])
        if call.keep_intermediate:
            outputs[r].append(_stack([xs[q] for q in place(call, r).gathered], xs[r].shape))
    return outputs


def output_block(
    call: LinearParallel, rank: int, x_shapes: Sequence[tuple[int, ...]]
) -> tuple[int, int, tuple[int, ...]]:
    """Return the rows [first, end) of the product that a rank gets, and the output's shape but n.

    Dim 0 is what is gathered and scattered; type 1 scatters dim 1 of an x [1, m, k].

    Raises:
        ValueError: the rows do not divide, or do not fit the lists.

    Example:
        >>> output_block(LinearParallel(REDUCE_SCATTER, 2), 1, [(1, 6, 4)] * 2)
        (3, 6, (1, 3))
    """
    shape = x_shapes[rank]
    ahead: tuple[int, ...] = ()
    if call.type == REDUCE_SCATTER and len(shape) == 3 and shape[0] == 1:
        ahead, shape = (1,), shape[1:]
    inner = shape[1:-1]
    members = place(call, rank).gathered
    rows = shape[0] if len(members) == 1 else sum(x_shapes[q][0] for q in members)
    first, end = block_of(call, rank, rows)
    size = int(np.prod(inner, dtype=np.int64))
    return first * size, end * size, (*ahead, end - first, *inner)


def output_dtype(call: LinearParallel, dtype: str) -> str:
    """Return the dtype of the output, by that of x.

    Raises:
        ValueError: x is int8, and the call has no out_dtype.

    Example:
        >>> output_dtype(LinearParallel(3, 2, quant_type=0, out_dtype="bfloat16"), "int8")
        'bfloat16'
    """
    if dtype != "int8":
        return dtype
    if call.out_dtype not in ("float16", "bfloat16", "float32"):
        raise ValueError(f"linear_parallel: an int8 x needs outDataType, got {call.out_dtype!r}")
    return call.out_dtype


def _check_tensors(
    call: LinearParallel, xs: Sequence[Array], weights: Sequence[Array], residuals: Sequence[Array]
) -> None:
    """Raise ValueError for shapes that numpy's broadcasting would accept with another meaning."""
    n = _columns(call, weights[0])
    if call.sum_columns and not call.sum_leaves:
        raise ValueError("linear_parallel: sumColumns without sumLeaves")
    for r, (x, weight) in enumerate(zip(xs, weights, strict=True)):
        k = (x if call.sum_leaves else xs[0]).shape[-1]
        if x.ndim not in (2, 3) or x.shape[1:] != (*xs[0].shape[1:-1], k):
            raise ValueError(f"linear_parallel: x of rank {r} is {list(x.shape)}")
        other = place(call, r).gathered[0]
        if xs[other].shape[-1] != k:
            raise ValueError(
                f"linear_parallel: x of rank {r} is {list(x.shape)}, that of rank {other} has "
                f"{xs[other].shape[-1]} columns"
            )
        wanted = (n, k) if call.trans_weight else (k, n)
        if weight.shape[-2:] != wanted or weight.size != n * k:
            words = f"[n, {k}]" if call.trans_weight else f"[{k}, n]"
            got = list(weight.shape)
            raise ValueError(f"linear_parallel: weight of rank {r} is {got}, expected {words}")
        if call.gather_rows:
            own = place(call, r)
            heights = [xs[q].shape[0] for q in own.gathered]
            if list(call.gather_rows[r]) != heights:
                given = list(call.gather_rows[r])
                raise ValueError(f"linear_parallel: gatherRows {given} of rank {r} are {heights}")
    for r, residual in enumerate(residuals):
        if residual.shape not in ((n,), (1, n)):
            raise ValueError(f"linear_parallel: residual of rank {r} is {list(residual.shape)}")


def _columns(call: LinearParallel, weight: Array) -> int:
    return int(weight.shape[-2 if call.trans_weight else -1])


def parts_of(
    call: LinearParallel,
    rank: int,
    xs: Sequence[Array],
    weights: Sequence[Array],
    scales: Sequence[Scales] = (),
    multiply: Multiply = quantised_product,
    cut: Sequence[int] = (),
    leaf: Product = leaf_product,
) -> list[Single]:
    """Return a rank's parts of S in float32: T, or the products of its leaves.

    Args:
        call, xs, weights, scales: as in linear_parallel.
        rank: the rank.
        multiply: makes the products where they are quantised.
        cut: the borders of leaves in the rank's columns; none: those that it has.
        leaf: makes the product of a leaf.

    Example:
        >>> x, weight = np.ones((1, 3), np.float16), np.ones((2, 3), np.float16)
        >>> [part.tolist() for part in parts_of(LinearParallel(3, 1), 0, [x], [weight])]
        [[[3.0, 3.0]]]
        >>> call = LinearParallel(3, 1, sum_leaves=2)
        >>> [part.tolist() for part in parts_of(call, 0, [x], [weight])]
        [[[2.0, 2.0]], [[1.0, 1.0]]]
    """
    if call.sum_leaves and not cut:
        columns = [xs[q].shape[-1] for q in place(call, rank).reduced]
        cut = leaf_borders(call, rank, columns)
    leaves = list(pairwise(cut))
    if not scales:
        left, right = _factors(call, rank, xs, weights)
        if not call.sum_leaves:
            return [float_product(left, right)]
        return [leaf(left[:, a:b], right[a:b]) for a, b in leaves]
    members = place(call, rank).gathered
    tokens = [scales[q].token_scale for q in members]
    given = [token.reshape(-1) for token in tokens if token is not None]
    own = replace(scales[rank], token_scale=np.concatenate(given) if given else None)
    factors = (_stack([xs[q] for q in members]), _factor(call, weights[rank]), own)
    how = (call.quant_type, call.quant_group_size)
    if not call.sum_leaves:
        return [multiply(*factors, *how, float_product)]
    return [quantised_leaf(*factors, own_leaf, *how, multiply, leaf) for own_leaf in leaves]


def _sum_in_order(parts: Sequence[Single]) -> Single:
    total: Single = parts[0].copy()
    with np.errstate(all="ignore"):
        for part in parts[1:]:
            total += part
    return total


def _factors(
    call: LinearParallel, rank: int, xs: Sequence[Array], weights: Sequence[Array]
) -> tuple[Single, Single]:
    """Return the gathered x and the weight as [k, n], in float32."""
    dtype = name_of(xs[0])
    left = _stack([xs[q] for q in place(call, rank).gathered])
    return widened(left, dtype), widened(_factor(call, weights[rank]), dtype)


def _factor(call: LinearParallel, weight: Array) -> Array:
    """Return a weight as [k, n]."""
    flat = weight.reshape(weight.shape[-2:])
    return flat.T if call.trans_weight else flat


def _stack(parts: Sequence[Array], shape: Sequence[int] | None = None) -> Array:
    """Return x of several ranks as [rows, k], or joined in dim 0 where a shape is given."""
    if shape is None:
        parts = [part.reshape(math.prod(part.shape[:-1]), part.shape[-1]) for part in parts]
    return np.concatenate(parts)
