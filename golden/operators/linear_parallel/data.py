"""The tensors of LinearParallel's cases: with sums that are exact in any order, or rounded."""

from __future__ import annotations

import numpy as np

from ...data.bit_patterns import mix
from ...data.dtypes import Array, float_format, rounded
from ...data.generators import generate
from .groups import LinearParallel, place

# Largest magnitude of a residual of exact data.
_RESIDUAL = 8


def linear_inputs(
    call: LinearParallel,
    rank: int,
    x_shape: tuple[int, ...],
    columns: int,
    dtype: str,
    kind: str,
    seed: int,
) -> dict[str, Array]:
    """Return x, weight and, where there is one, residual of a rank.

    - exact: small whole numbers; in any order of additions every partial and final sum is exact in
      `dtype`. If K is large, a part of the weight is zero.
    - random: floats in [-1, 1).

    Both differ in every rank, tensor and position.

    Args:
        call: the parameters.
        rank: the rank of the tensors.
        x_shape: shape of its x, [m, k] or [b, m, k].
        columns: n.
        dtype: float16, bfloat16 or float32.
        kind: exact or random.
        seed: a seed; each gives different data of the same kind.

    Raises:
        ValueError: another kind.

    Example:
        >>> call = LinearParallel(3, 2, trans_weight=False)
        >>> own = linear_inputs(call, 1, (2, 3), 4, "float16", "exact", 0)
        >>> own["x"].shape, own["weight"].shape, bool((own["x"] == own["x"].round()).all())
        ((2, 3), (3, 4), True)
    """
    k = x_shape[-1]
    flat = (columns, k) if call.trans_weight else (k, columns)
    shapes = {"x": x_shape, "weight": (call.local_experts, *flat) if call.has_experts else flat}
    if call.has_residual:
        shapes["residual"] = (columns,) if rank % 2 else (1, columns)
    if kind == "random":
        return {
            name: generate(
                "random", shape, dtype, value_range=(-1, 1), rank=rank, position=at, seed=seed
            )
            for at, (name, shape) in enumerate(shapes.items())
        }
    if kind != "exact":
        raise ValueError(f"linear_parallel has data of kind exact or random, got {kind!r}")
    ranks = call.tp_size if call.has_experts else len(place(call, rank).reduced)
    terms = max(1, k * ranks)
    limit = 2 ** (float_format(dtype).mantissa + 1) - _RESIDUAL
    amplitude = max(1, min(7, int((limit / terms) ** 0.5)))
    tensors = {
        name: whole_numbers(shape, amplitude if name != "residual" else _RESIDUAL, rank, at, seed)
        for at, (name, shape) in enumerate(shapes.items())
    }
    stride = -(-terms * amplitude**2 // limit)
    if stride > 1:
        tensors["weight"] = tensors["weight"] * _pattern(call, k, columns, stride, rank)
    return {name: rounded(values, dtype) for name, values in tensors.items()}


def whole_numbers(
    shape: tuple[int, ...], amplitude: int, rank: int, position: int, seed: int
) -> Array:
    """Return whole numbers in [-amplitude, amplitude], never 0.

    Example:
        >>> bool((abs(whole_numbers((50,), 3, 0, 0, 0)) >= 1).all())
        True
    """
    size = int(np.prod(shape, dtype=np.int64))
    words = mix(np.arange(size, dtype=np.uint64), seed * 1009 + position, rank)
    values = (words >> np.uint64(1)).astype(np.int64) % amplitude + 1
    signs = 1 - 2 * (words & np.uint64(1)).astype(np.int64)
    return np.asarray(values * signs, np.float32).reshape(shape)


def _pattern(call: LinearParallel, k: int, columns: int, stride: int, rank: int) -> Array:
    """Return 1 at every stride-th k of each column, shifted from column to column, else 0."""
    keep = (np.arange(k)[:, None] + 7 * np.arange(columns)[None, :] + rank) % stride == 0
    # A column has at most k // stride ones, so that the sum over R ranks stays below the limit.
    keep &= np.cumsum(keep, axis=0) <= max(1, k // stride)
    return np.asarray(keep.T if call.trans_weight else keep, np.float32)
