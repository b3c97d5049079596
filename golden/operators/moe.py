"""References of moe_dispatch and moe_combine, of the plain level: rows to experts and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.dtypes import Array, name_of, rounded, widened
from .linear_parallel.experts import segments
from .linear_parallel.groups import ALL_TO_ALL_EXPERTS, LinearParallel

Ids = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Dispatched:
    """What a rank has after moe_dispatch.

    `rows` are [R, hidden], by local expert, then by source rank, then in the source's own order;
    `counts` are the rows of each local expert; `scales` are float32 [R], None without. Of the
    handle: `send_counts` and `recv_counts` [P, local experts].

    Example:
        >>> [one] = moe_dispatch([np.array([[5], [6]])], [np.array([[1], [0]])], 2)
        >>> one.rows.tolist(), one.counts.tolist(), one.send_counts.tolist()
        ([[6], [5]], [1, 1], [[1, 1]])
    """

    rows: Array
    counts: npt.NDArray[np.int64]
    send_counts: npt.NDArray[np.int64]
    recv_counts: npt.NDArray[np.int64]
    scales: npt.NDArray[np.float32] | None = None


def moe_dispatch(
    xs: Sequence[Array],
    topk_ids: Sequence[Ids],
    num_experts: int,
    *,
    quantize: str | None = None,
    scales: Sequence[Array] | None = None,
) -> list[Dispatched]:
    """Return the result of moe_dispatch on every rank.

    Row x[t] goes to the rank of expert topk_ids[t, k] for every k; an id of -1 is none. Expert e
    lies on rank `e // (num_experts / P)`. The rows that a source has for one expert are in the
    order of (t, k).

    Args:
        xs: x of every rank, [T, hidden]; T may differ.
        topk_ids: expert ids of every rank, [T, K].
        num_experts: experts of all ranks together.
        quantize: "int8": rows and scales are those of `quantised_rows`.
        scales: own scales of every rank, [T], which travel with their rows.

    Raises:
        ValueError: experts that do not divide, ids outside [-1, num_experts), or of another shape.

    Example:
        >>> xs = [np.array([[1], [2]]), np.array([[3]])]
        >>> ids = [np.array([[1, 0], [1, -1]]), np.array([[0, 0]])]
        >>> [one.rows.reshape(-1).tolist() for one in moe_dispatch(xs, ids, 2)]
        [[1, 3, 3], [1, 2]]
    """
    size = len(xs)
    _check(xs, topk_ids, num_experts)
    if quantize is not None:
        if quantize != "int8":
            raise ValueError(f"moe_dispatch: quantize must be 'int8', got {quantize!r}")
        pairs = [quantised_rows(x) for x in xs]
        xs, scales = [rows for rows, _ in pairs], [scale for _, scale in pairs]
    call, tokens = _routing(topk_ids, num_experts)
    senders = [_sent(ids) // ids.shape[1] for ids in topk_ids]
    results = []
    for r in range(size):
        own = segments(call, tokens, r)
        taken = [(s.source, senders[s.source][s.source_row : s.source_row + s.rows]) for s in own]
        each = num_experts // size
        received = tokens[:, r * each : (r + 1) * each]
        results.append(
            Dispatched(
                rows=np.concatenate([xs[source][rows] for source, rows in taken]),
                counts=received.sum(axis=0),
                send_counts=tokens[r].reshape(size, each),
                recv_counts=received,
                scales=None
                if scales is None
                else np.concatenate([scales[source][rows] for source, rows in taken]),
            )
        )
    return results


def quantised_rows(x: Array) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Return rows as int8, with a scale of each: `scale = max|x| / 127; q = rint(x / scale)`.

    In float32; rint is half to even. q is in [-127, 127], and 0 where the scale is 0.

    Example:
        >>> rows, scales = quantised_rows(np.array([[127, -2.5, 3.5], [0, 0, 0]], np.float32))
        >>> rows.tolist(), scales.tolist()
        ([[127, -2, 4], [0, 0, 0]], [1.0, 0.0])
    """
    wide = widened(x, name_of(x))
    scale = np.abs(wide).max(axis=1, initial=0) / np.float32(127)
    with np.errstate(all="ignore"):
        whole = np.rint(wide / scale[:, None])
    whole = np.where(scale[:, None] == 0, np.float32(0), np.clip(whole, -127, 127))
    return whole.astype(np.int8), scale


def moe_combine(
    rows: Sequence[Array],
    topk_ids: Sequence[Ids],
    num_experts: int,
    topk_weights: Sequence[Array] | None = None,
) -> list[Array]:
    """Return the result of moe_combine on every rank, [T, hidden].

    `y[t] = sum over k ascending of float32(w[t, k]) * float32(row of (t, k))`: it starts from 0,
    every product and every sum is rounded to float32, and the last sum to the dtype of the rows.
    Without weights it is the sum of the rows. Where the id is -1, nothing is added.

    Args:
        rows: the rows of every rank in the order in which moe_dispatch made them.
        topk_ids, num_experts: what moe_dispatch got.
        topk_weights: weights of every rank, [T, K]; None: none.

    Raises:
        ValueError: as moe_dispatch, or rows or weights of another number.

    Example:
        >>> xs = [np.array([[1], [2]], np.float32), np.array([[3]], np.float32)]
        >>> ids = [np.array([[1, 0], [1, -1]]), np.array([[0, 0]])]
        >>> rows = [one.rows * 10 for one in moe_dispatch(xs, ids, 2)]
        >>> [y.tolist() for y in moe_combine(rows, ids, 2)]
        [[[20.0], [20.0]], [[60.0]]]
        >>> weights = [np.array([[0.5, 1], [2, 9]], np.float32), np.array([[0, 0.25]], np.float32)]
        >>> [y.tolist() for y in moe_combine(rows, ids, 2, weights)]
        [[[15.0], [40.0]], [[7.5]]]
    """
    _check(rows, topk_ids, num_experts, of_rows=True)
    dtype = name_of(rows[0])
    call, tokens = _routing(topk_ids, num_experts)
    back = [np.zeros((ids.size, rows[0].shape[1]), np.float32) for ids in topk_ids]
    for r, own in enumerate(rows):
        wide, layout = widened(own, dtype), segments(call, tokens, r)
        if len(own) != sum(one.rows for one in layout):
            raise ValueError(f"moe_combine: rank {r} has {len(own)} rows, not those it received")
        for one in layout:
            places = _sent(topk_ids[one.source])[one.source_row : one.source_row + one.rows]
            back[one.source][places] = wide[one.row : one.row + one.rows]
    outputs = []
    for r, ids in enumerate(topk_ids):
        if topk_weights is not None and topk_weights[r].shape != ids.shape:
            raise ValueError(f"moe_combine: weights of rank {r} are {topk_weights[r].shape}")
        mine = back[r].reshape(*ids.shape, back[r].shape[1])
        total = np.zeros((ids.shape[0], mine.shape[2]), np.float32)
        for k in range(ids.shape[1]):
            with np.errstate(all="ignore"):
                part = mine[:, k]
                if topk_weights is not None:
                    weights = widened(topk_weights[r], name_of(topk_weights[r]))
                    part = weights[:, k : k + 1] * part
                total = np.where(ids[:, k : k + 1] < 0, total, total + part)
        outputs.append(rounded(total, dtype))
    return outputs


def _routing(
    topk_ids: Sequence[Ids], num_experts: int
) -> tuple[LinearParallel, npt.NDArray[np.int64]]:
    """Return the groups of the experts, and the rows that each rank has for each of them."""
    size = len(topk_ids)
    call = LinearParallel(ALL_TO_ALL_EXPERTS, size, ep_size=size, local_experts=num_experts // size)
    tokens = [np.bincount(ids[ids >= 0].reshape(-1), minlength=num_experts) for ids in topk_ids]
    return call, np.array(tokens, np.int64).reshape(size, num_experts)


def _sent(ids: Ids) -> npt.NDArray[np.int64]:
    """Return the places t * K + k of a rank's rows in the order in which they are sent."""
    flat = ids.reshape(-1).astype(np.int64)
    order = np.argsort(flat, kind="stable")
    return np.asarray(order[flat[order] >= 0])


def _check(
    xs: Sequence[Array], topk_ids: Sequence[Ids], num_experts: int, *, of_rows: bool = False
) -> None:
    if num_experts % len(xs):
        raise ValueError(f"moe: {num_experts} experts do not divide among {len(xs)} ranks")
    for r, (x, ids) in enumerate(zip(xs, topk_ids, strict=True)):
        if ids.ndim != 2 or (len(ids) != len(x) and not of_rows):
            raise ValueError(f"moe: topk_ids of rank {r} are {ids.shape}, x is {x.shape}")
        if ids.size and not -1 <= ids.min() <= ids.max() < num_experts:
            raise ValueError(f"moe: an id of rank {r} is not in [-1, {num_experts})")
