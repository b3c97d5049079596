"""The tensors of quantised cases of LinearParallel, and of those with experts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...data.bit_patterns import extremes, mix
from ...data.dtypes import Array, rounded
from ...data.generators import generate
from .data import whole_numbers
from .experts import Tokens
from .groups import LinearParallel
from .quantised import PER_GROUP, PER_TENSOR, PER_TOKEN

# Ends of int32, and the first numbers that float32 must round: downwards, and to even.
_BIASES = np.array([0, 2**31 - 1, -(2**31), 2**24 + 1, 2**24 + 3, -(2**24) - 1], np.int64)
_LOW_BITS = 13  # of a scale in int64, which ATB's hardware ignores


def quantised_inputs(
    call: LinearParallel,
    rank: int,
    x_shape: tuple[int, ...],
    columns: int,
    dtype: str,
    kind: str,
    seed: int,
) -> dict[str, Array]:
    """Return the tensors of a rank in ATB's order, without those that route rows to experts.

    With an int8 x:

    - full: all of int8, any bias, scales of either sign that keep float16 finite;
    - saturating: the ends of int8 alone, neighbours mostly alike;
    - special: as full, with scales and scales per token that are zeros, infinities, NaNs and
      subnormals, and with rubbish in the bits of an int64 scale that mean nothing.

    With a float x:

    - exact: sums that are exact in float32 in any order, of weights that are rounded;
    - random: floats in [-1, 1), and an int8 weight as full has it.

    An int64 scale is that of a float16 output, and of a bfloat16 one without trans_weight.

    Raises:
        ValueError: another kind.

    Example:
        >>> call = LinearParallel(3, 2, quant_type=1, out_dtype="float16")
        >>> own = quantised_inputs(call, 1, (2, 3), 4, "int8", "full", 0)
        >>> {name: (tensor.dtype.name, tensor.shape) for name, tensor in own.items()}
        {'x': ('int8', (2, 3)), 'weight': ('int8', (4, 3)), 'bias': ('int32', (1, 4)), \
'scale': ('int64', (4,))}
    """
    kinds = ("full", "saturating", "special") if dtype == "int8" else ("exact", "random")
    if kind not in kinds:
        raise ValueError(f"quantised data of {dtype} is of kind {' or '.join(kinds)}, got {kind!r}")
    k, local = x_shape[-1], call.local_experts
    flat = (columns, k) if call.trans_weight else (k, columns)
    scales = (
        local * columns if call.has_experts else 1 if call.quant_type == PER_TENSOR else columns
    )
    shape: tuple[int, ...] = (scales,)
    if call.quant_type == PER_GROUP:
        shape = (-(-k // call.quant_group_size) if call.quant_group_size else 1, scales)
    how = (rank, seed)
    tensors = {
        "x": _int8(x_shape, kind, 0, *how)
        if dtype == "int8"
        else _floats(x_shape, dtype, kind, *how),
        "weight": _int8((local, *flat) if call.has_experts else flat, kind, 1, *how),
    }
    if not call.has_experts:
        bias = _biases(shape, dtype, kind, *how) if call.has_bias else np.zeros(0)
        bias = bias.reshape(1, -1) if rank % 2 and call.has_bias and len(shape) == 1 else bias
        tensors["bias"] = bias.astype(np.int32) if dtype == "int8" else rounded(bias, dtype)
    out_dtype = call.out_dtype if dtype == "int8" else dtype
    scale = _scales(shape, dtype, kind, k, *how)
    if dtype != "int8":
        tensors["scale"] = rounded(scale, dtype)
    elif out_dtype == "float16" or (out_dtype == "bfloat16" and not call.trans_weight):
        tensors["scale"] = _as_int64(scale, kind, *how)
    else:
        tensors["scale"] = scale
    if not call.has_experts and not rank % 2 and len(shape) == 1:
        tensors["scale"] = tensors["scale"].reshape(1, -1)
    if call.has_residual:
        residual = (columns,) if rank % 2 else (1, columns)
        tensors["residual"] = rounded(whole_numbers(residual, 8, rank, 2, seed), out_dtype)
    if call.quant_type == PER_TOKEN:
        token = _scales((x_shape[0],), "float32", kind, 1, rank + call.rank_size, seed)
        tensors["perTokenScale"] = token
    return tensors


def even_tokens(call: LinearParallel, x_rows: int, rows: int) -> Tokens:
    """Return a matrix with as many rows of each source for each expert as all have room for.

    Args:
        call: the parameters.
        x_rows, rows: rows of every rank's x and output.

    Example:
        >>> even_tokens(LinearParallel(5, 4, ep_size=2, tp_size=2), 7, 40).tolist()
        [[3, 3], [3, 3]]
    """
    experts = call.ep_size * call.local_experts
    sent, received = (x_rows, rows) if call.type == 5 else (rows, x_rows)
    each = min(sent // max(1, experts), received // max(1, call.rank_size * call.local_experts))
    return np.full((call.ep_size, experts), each, np.int32)


def _words(shape: tuple[int, ...], position: int, rank: int, seed: int) -> npt.NDArray[np.uint64]:
    size = int(np.prod(shape, dtype=np.int64))
    return mix(np.arange(size, dtype=np.uint64), seed * 1009 + position, rank).reshape(shape)


def _int8(shape: tuple[int, ...], kind: str, position: int, rank: int, seed: int) -> Array:
    words = _words(shape, position, rank, seed)
    if kind != "saturating":
        return np.asarray(words.astype(np.uint8)).view(np.int8)
    # Three of four neighbours alike: pairs of equal extremes overflow 16 bits, and all signs meet.
    return np.asarray(np.where(words % np.uint64(4) == 0, 127, -128), np.int8)


def _floats(shape: tuple[int, ...], dtype: str, kind: str, rank: int, seed: int) -> Array:
    if kind == "exact":
        return rounded(whole_numbers(shape, 7, rank, 0, seed), dtype)
    return generate("random", shape, dtype, value_range=(-1, 1), rank=rank, seed=seed)


def _biases(shape: tuple[int, ...], dtype: str, kind: str, rank: int, seed: int) -> Array:
    words = _words(shape, 3, rank, seed)
    if dtype != "int8":
        return np.asarray((words % np.uint64(15)).astype(np.float64) / 2 - 3.5)
    small = (words % np.uint64(2001)).astype(np.int64) - 1000
    chosen = _BIASES[(words >> np.uint64(20)).astype(np.int64) % len(_BIASES)]
    biases: Array = np.where((words >> np.uint64(62) == 0) & (kind != "full"), chosen, small)
    return biases


def _scales(
    shape: tuple[int, ...], dtype: str, kind: str, k: int, rank: int, seed: int
) -> npt.NDArray[np.float32]:
    words = _words(shape, 4, rank, seed)
    unit = (words >> np.uint64(40)).astype(np.float64) * 2.0**-24
    signs = np.where(words & np.uint64(1), -1.0, 1.0)
    if kind == "exact":
        return np.asarray(signs * (words % np.uint64(5) + np.uint64(2)) / 4, np.float32)
    # So small that sums of k products stay within float16.
    power = k.bit_length() if kind == "saturating" else k.bit_length() // 2 + 3
    size = 2.0**-power if dtype == "int8" and k > 1 else 1.0
    values = (signs * (0.25 + unit) * size).astype(np.float32)
    if kind == "special":
        choice = extremes("float32")[(words >> np.uint64(8)).astype(np.int64) % 17]
        values = np.where(words >> np.uint64(4) & np.uint64(3) == 0, values, choice)
    return np.asarray(values, np.float32)


def _as_int64(scale: npt.NDArray[np.float32], kind: str, rank: int, seed: int) -> Array:
    bits: npt.NDArray[np.int64] = scale.view(np.uint32).astype(np.int64)
    if kind != "special":
        return bits >> _LOW_BITS << _LOW_BITS
    rubbish = (_words(scale.shape, 5, rank, seed) >> np.uint64(32)).astype(np.int64) << 32
    return np.asarray(bits | rubbish)
