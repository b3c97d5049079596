"""Products with an int8 weight: W8A8, whose x is int8, and W8A16, whose x is a float."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...data.dtypes import Array, name_of, rounded, widened
from ...data.leaves import leaf_product

Single = npt.NDArray[np.float32]
# A product of float32 matrices.
Product = Callable[[Single, Single], Single]
# A product of x and weight [k, n] with scales, quantType and quantGroupSize, made by a Product; see
# quantised_product.
Multiply = Callable[[Array, Array, "Scales", int, int, Product], Single]
# ATB's QuantType.
UNQUANTISED, PER_TENSOR, PER_CHANNEL, PER_GROUP, PER_TOKEN = range(-1, 4)
# From this number of products on numpy's matmul is used, which is faster and has its own order.
_LARGE = 2**26


@dataclass(frozen=True, eq=False)
class Scales:
    """What a rank's quantised product has beside x and weight.

    `scale` is [1], [n] or [groups, n], with experts [experts * n]: float, or int64 whose low 32
    bits are a float32. `bias` has the shape of the scale: with W8A8 int32, added to the sum; with
    W8A16 the offset, added to the weight. An empty one is none. `token_scale` is float32, one for
    each row of x.

    Example:
        >>> Scales(np.array([0.5], np.float32)).bias is None
        True
    """

    scale: Array
    bias: Array | None = None
    token_scale: Array | None = None


def scale_values(scale: Array) -> Single:
    """Return a scale as float32: of an int64 the low 32 bits, unchanged.

    ATB's hardware ignores the 13 lowest of these bits as well.

    Example:
        >>> bits = np.array([0.5, -2.0], np.float32).view(np.uint32).astype(np.int64)
        >>> scale_values(bits + 2**40).tolist(), scale_values(np.array([0.1], np.float16)).tolist()
        ([0.5, -2.0], [0.0999755859375])
    """
    if scale.dtype == np.int64:
        return (scale & 0xFFFFFFFF).astype(np.uint32).view(np.float32)
    return widened(scale, name_of(scale))


def float_product(left: Single, right: Single) -> Single:
    """Return left @ right, computed in float64; small products have the same bits everywhere.

    Example:
        >>> float_product(np.ones((1, 2), np.float32), np.ones((2, 1), np.float32)).tolist()
        [[2.0]]
    """
    a, b = left.astype(np.float64), right.astype(np.float64)
    with np.errstate(all="ignore"):
        if left.size * right.shape[1] >= _LARGE:
            return np.asarray((a @ b).astype(np.float32))
        total = np.zeros((left.shape[0], right.shape[1]))
        for i in range(left.shape[1]):
            total += a[:, i : i + 1] * b[i]
        return total.astype(np.float32)


def integer_product(x: Array, weight: Array) -> npt.NDArray[np.int32]:
    """Return x @ weight of int8 matrices as int32, modulo 2^32.

    Example:
        >>> x = np.full((1, 131072), -128, np.int8)
        >>> integer_product(x, x.T).tolist(), integer_product(x[:, 1:], x.T[1:]).tolist()
        ([[-2147483648]], [[2147467264]])
    """
    # Every partial sum is a whole number below 2^53, so that the order does not matter.
    exact = x.astype(np.float64) @ weight.astype(np.float64)
    return np.asarray(exact).astype(np.int64).astype(np.int32)


def quantised_product(
    x: Array,
    weight: Array,
    scales: Scales,
    quant_type: int = PER_CHANNEL,
    group_size: int = 0,
    product: Product = float_product,
) -> Single:
    """Return a quantised product in float32, before it is rounded to the output's dtype.

    `W8A8: y = float32(x @ weight + bias) * scale [* token_scale]`, the sum modulo 2^32;
    `W8A16: y = x @ W' [* token_scale], W' = round((float32(weight) + bias) * scale)`, rounded to
    x's dtype. Each step in float32 is rounded to nearest even; steps go from left to right.

    Args:
        x: [rows, k], int8, or a float dtype with W8A16; bfloat16 as uint16 bits.
        weight: [k, n], int8.
        scales: scale, bias and token_scale.
        quant_type: ATB's quantType; only PER_GROUP has more than one scale for a column.
        group_size: rows of the weight that share a scale; 0: all of them.
        product: makes W8A16's product.

    Raises:
        ValueError: W8A8 with groups, or tensors that do not fit.

    Example:
        >>> x, w = np.array([[3, -4]], np.int8), np.array([[2, 1], [1, 2]], np.int8)
        >>> scales = Scales(np.array([0.5, 2], np.float32), np.array([1, 0], np.int32))
        >>> quantised_product(x, w, scales).tolist()
        [[1.5, -10.0]]
        >>> scale, offset = (np.array([[v] * 2 for v in own], "f2") for own in ([1, 0.5], [0, 1]))
        >>> quantised_product(x.astype("f2"), w, Scales(scale, offset), PER_GROUP, 1).tolist()
        [[2.0, -3.0]]
    """
    _check(x, weight, scales, quant_type, group_size)
    with np.errstate(all="ignore"):
        if x.dtype == np.int8:
            total = with_bias(integer_product(x, weight), scales).astype(np.float32)
            y: Single = total * scale_values(scales.scale).reshape(1, -1)
        else:
            factor = dequantised_weight(weight, scales, name_of(x), quant_type, group_size)
            y = product(widened(x, name_of(x)), widened(factor, name_of(x)))
        return with_token_scale(y, scales)


def quantised_leaf(
    x: Array,
    weight: Array,
    scales: Scales,
    borders: tuple[int, int],
    quant_type: int = PER_CHANNEL,
    group_size: int = 0,
    multiply: Multiply = quantised_product,
    product: Product = leaf_product,
) -> Single:
    """Return the quantised product of columns of x and rows of the weight, a leaf of them.

    The bias of W8A8 is part of the leaf that begins with column 0.

    Args:
        x, weight, scales, quant_type, group_size: as in quantised_product, of all columns.
        borders: the first column of the leaf, and its end.
        multiply, product: make the leaf's product, the latter that of W8A16.

    Example:
        >>> x, w = np.array([[3, -4]], np.int8), np.array([[2, 1], [1, 2]], np.int8)
        >>> scales = Scales(np.array([0.5, 2], np.float32), np.array([1, 0], np.int32))
        >>> [quantised_leaf(x, w, scales, own).tolist() for own in ((0, 1), (1, 2))]
        [[[3.5, 6.0]], [[-2.0, -16.0]]]
    """
    first, end = borders
    if x.dtype == np.int8 and first:
        scales = replace(scales, bias=None)
    elif quant_type == PER_GROUP and group_size:
        # Groups are those of the whole weight: each row of the leaf gets its scale and offset.
        lines, n = np.arange(first, end) // group_size, weight.shape[1]
        scales = replace(scales, scale=scales.scale.reshape(-1, n)[lines])
        if scales.bias is not None and scales.bias.size:
            scales = replace(scales, bias=scales.bias.reshape(-1, n)[lines])
        group_size = 1
    leaf = (x[:, first:end], weight[first:end])
    return multiply(*leaf, scales, quant_type, group_size, product)


def with_bias(total: npt.NDArray[np.int32], scales: Scales) -> npt.NDArray[np.int32]:
    """Return an integer product with the bias, if there is one, modulo 2^32.

    Example:
        >>> ends = np.array([[2**31 - 1]], np.int32)
        >>> with_bias(ends, Scales(np.ones(1), np.ones(1, np.int32))).tolist()
        [[-2147483648]]
    """
    if scales.bias is None or not scales.bias.size:
        return total
    return np.asarray(total + scales.bias.astype(np.int32).reshape(1, -1))


def with_token_scale(y: Single, scales: Scales) -> Single:
    """Return a product with the scale of each row, if there are such.

    Example:
        >>> ones, token = np.ones((2, 1), np.float32), np.array([2, 3], np.float32)
        >>> with_token_scale(ones, Scales(ones[0], token_scale=token)).tolist()
        [[2.0], [3.0]]
    """
    if scales.token_scale is None:
        return y
    with np.errstate(all="ignore"):
        return np.asarray(y * scales.token_scale.astype(np.float32).reshape(-1, 1))


def dequantised_weight(
    weight: Array, scales: Scales, dtype: str, quant_type: int = PER_CHANNEL, group_size: int = 0
) -> Array:
    """Return the weight [k, n] of W8A16 in x's dtype: `round((float32(weight) + bias) * scale)`.

    Example:
        >>> scales = Scales(np.array([0.5], np.float16), np.array([1], np.float16))
        >>> dequantised_weight(np.array([[3, -1]], np.int8), scales, "float16").tolist()
        [[2.0, 0.0]]
    """
    with np.errstate(all="ignore"):
        scale, offset = scale_and_offset(weight, scales, group_size)
        return rounded((weight.astype(np.float32) + offset) * scale, dtype)


def scale_and_offset(weight: Array, scales: Scales, group_size: int) -> tuple[Single, Single]:
    """Return the scale and the offset of each row of a weight, or one row for all of them.

    Example:
        >>> scales = Scales(np.array([[1], [2]], np.float16))
        >>> scale, offset = scale_and_offset(np.ones((3, 1), np.int8), scales, 2)
        >>> scale.tolist(), offset.tolist()
        ([[1.0], [1.0], [2.0]], [[0.0]])
    """
    scale = _of_rows(scale_values(scales.scale), weight, group_size)
    if scales.bias is None or not scales.bias.size:
        return scale, np.zeros((1, 1), np.float32)
    return scale, _of_rows(widened(scales.bias, name_of(scales.bias)), weight, group_size)


def _of_rows(values: Single, weight: Array, group_size: int) -> Single:
    """Return the scale or offset of each row of a weight: of its group, or the only one."""
    lines = values.reshape(1, -1) if values.ndim < 2 else values
    if len(lines) == 1:
        return lines
    return lines[np.arange(weight.shape[0]) // group_size]


def _check(x: Array, weight: Array, scales: Scales, quant_type: int, group_size: int) -> None:
    k, n = weight.shape
    is_grouped = quant_type == PER_GROUP
    if is_grouped and x.dtype == np.int8:
        raise ValueError("linear_parallel: int8 x has no scale per group")
    groups = -(-k // group_size) if is_grouped and group_size else 1
    columns = 1 if quant_type == PER_TENSOR else n
    for name, tensor in (("scale", scales.scale), ("bias", scales.bias)):
        if tensor is None or (name == "bias" and not tensor.size):
            continue
        allowed = {(groups, columns)} | ({(columns,)} if groups == 1 else set())
        if tensor.shape not in allowed:
            got = list(tensor.shape)
            raise ValueError(f"linear_parallel: {name} is {got}, expected {[groups, columns]}")
    if x.shape[1] != k:
        raise ValueError(f"linear_parallel: x has {x.shape[1]} columns, weight {k} rows")
    if scales.token_scale is not None and scales.token_scale.size != x.shape[0]:
        got = list(scales.token_scale.shape)
        raise ValueError(f"linear_parallel: perTokenScale is {got}, x has {x.shape[0]} rows")
