"""Known faults of products: what they make of a call's outputs, for explain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ...data.dtypes import Array, name_of, rounded, widened
from ..output_layout import Fault
from .experts import Segment, Tokens, expert_product, expert_totals, finished, segments
from .groups import ALL_TO_ALL_EXPERTS, LinearParallel, place
from .quantised import (
    Multiply,
    Product,
    Scales,
    Single,
    integer_product,
    quantised_product,
    scale_and_offset,
    scale_values,
    with_bias,
    with_token_scale,
)
from .reference import output_dtype, parts_of, reduced

SCALE, BIAS, RESIDUAL = "wrong scale", "wrong bias", "wrong residual"
SATURATION, ORDER = "int8 saturation", "wrong expert order"


@dataclass(frozen=True, eq=False)
class Tensors:
    """The tensors of all ranks of a call; `tokens` and `rows` with experts.

    Example:
        >>> Tensors([], []).tokens is None
        True
    """

    xs: Sequence[Array]
    weights: Sequence[Array]
    residuals: Sequence[Array] = ()
    scales: Sequence[Scales] = ()
    tokens: Tokens | None = None
    rows: Sequence[int] = ()


def linear_faults(call: LinearParallel, tensors: Tensors) -> Iterator[Fault]:
    """Yield the faults of a call of LinearParallel, of all ranks, and of one rank where others add.

    Example:
        >>> x, w = np.array([[1, 2]], np.int8), np.array([[3, 4]], np.int8)
        >>> call = LinearParallel(3, 1, quant_type=1, out_dtype="float32")
        >>> half = [Scales(np.array([0.5], np.float32))]
        >>> found = {one.text: one for one in linear_faults(call, Tensors([x], [w], scales=half))}
        >>> found["the scale was applied twice"].outputs()[0].tolist()
        [[2.75]]
    """
    make = _expert_outputs if call.has_experts else _outputs
    for kind, text, multiply in _variants(call, tensors):
        yield Fault(kind, text, partial(make, call, tensors, multiply))
        for rank in range(call.rank_size) if _adds(call) else ():
            alone = partial(make, call, tensors, multiply, rank)
            yield Fault(kind, f"{text} by rank {rank} alone", alone)
    if tensors.residuals:
        bare = replace(tensors, residuals=())
        yield Fault(RESIDUAL, "the residual is missing", partial(make, call, bare))
        twice = replace(tensors, residuals=_doubled(call, tensors))
        yield Fault(RESIDUAL, "the residual was added twice", partial(make, call, twice))
        if _adds(call) and not call.has_experts:
            yield Fault(
                RESIDUAL, "every rank added its residual", partial(_residuals, call, tensors)
            )
    if all(weight.shape[-1] == weight.shape[-2] for weight in tensors.weights):
        turned = replace(tensors, weights=[w.swapaxes(-1, -2) for w in tensors.weights])
        yield Fault("transposed", "the weight was read transposed", partial(make, call, turned))
    if not call.is_quantised and not call.has_experts and not call.sum_leaves:
        dtype = output_dtype(call, name_of(tensors.xs[0]))
        if dtype != "float32":
            text = f"the products were accumulated in {dtype}, not in float32"
            yield Fault("rounding", text, partial(_accumulated, call, tensors, dtype))
            text = f"each rank's product was rounded to {dtype} before they were added"
            yield Fault("rounding", text, partial(_rounded_parts, call, tensors, dtype))
    if call.has_experts:
        yield from _orders(call, tensors)


def _adds(call: LinearParallel) -> bool:
    """Whether an output is a sum over several ranks."""
    if call.has_experts:
        return call.type != ALL_TO_ALL_EXPERTS and call.tp_size > 1
    return len(place(call, 0).reduced) > 1


def _outputs(
    call: LinearParallel,
    tensors: Tensors,
    multiply: Multiply = quantised_product,
    rank: int | None = None,
) -> list[Array]:
    """Return the first outputs if `multiply` makes the products, of one rank or of all."""
    own = (tensors.xs, tensors.weights, tensors.scales)
    parts = [
        parts_of(call, r, *own, multiply if rank in (None, r) else quantised_product)
        for r in range(call.rank_size)
    ]
    return [first for first, *_ in reduced(call, parts, tensors.xs, tensors.residuals)]


def _expert_outputs(
    call: LinearParallel,
    tensors: Tensors,
    multiply: Multiply = quantised_product,
    rank: int | None = None,
    layout: Sequence[Sequence[Segment]] | None = None,
) -> list[Array]:
    """Return the same with experts, whose rows may have another layout."""
    own = (tensors.xs, tensors.weights, tensors.scales)
    right, wrong = expert_product(call, *own), expert_product(call, *own, multiply)

    def product(r: int, one: Segment) -> Array:
        return (wrong if rank in (None, r) else right)(r, one)

    assert tensors.tokens is not None
    totals = expert_totals(call, tensors.tokens, product, layout)
    return finished(call, totals, name_of(tensors.xs[0]), tensors.rows, tensors.residuals)


def _doubled(call: LinearParallel, tensors: Tensors) -> list[Array]:
    dtype = output_dtype(call, name_of(tensors.xs[0]))
    return [rounded(2 * widened(residual, dtype), dtype) for residual in tensors.residuals]


def _accumulated(call: LinearParallel, tensors: Tensors, dtype: str) -> list[Array]:
    """Return the outputs of products whose sums are rounded to their dtype at every step."""

    def product(x: Single, weight: Single) -> Single:
        total = np.zeros((len(x), weight.shape[1]), np.float32)
        with np.errstate(all="ignore"):
            for k in range(x.shape[1]):
                total = widened(rounded(total + x[:, k : k + 1] * weight[k], dtype), dtype)
        return total

    # One leaf of all columns, whose product can be another one.
    columns = tensors.xs[0].shape[-1]
    whole = replace(call, sum_leaves=1)
    parts = [
        parts_of(whole, r, tensors.xs, tensors.weights, cut=[0, columns], leaf=product)
        for r in range(call.rank_size)
    ]
    return [first for first, *_ in reduced(call, parts, tensors.xs, tensors.residuals)]


def _rounded_parts(call: LinearParallel, tensors: Tensors, dtype: str) -> list[Array]:
    parts = [
        [
            widened(rounded(part, dtype), dtype)
            for part in parts_of(call, r, tensors.xs, tensors.weights)
        ]
        for r in range(call.rank_size)
    ]
    return [first for first, *_ in reduced(call, parts, tensors.xs, tensors.residuals)]


def _residuals(call: LinearParallel, tensors: Tensors) -> list[Array]:
    dtype = output_dtype(call, name_of(tensors.xs[0]))
    own = (tensors.xs, tensors.weights, tensors.scales)
    added = [widened(residual, dtype).reshape(1, -1) for residual in tensors.residuals]
    parts = [parts_of(call, r, *own) for r in range(call.rank_size)]
    with np.errstate(all="ignore"):
        for part, residual in zip(parts, added, strict=True):
            part[0] = np.asarray(part[0] + residual)
    return [first for first, *_ in reduced(call, parts, tensors.xs)]


def _orders(call: LinearParallel, tensors: Tensors) -> Iterator[Fault]:
    """Yield the faults of an order of rows, and of the choice of an expert's weight and scale."""
    assert tensors.tokens is not None
    right = [segments(call, tensors.tokens, r) for r in range(call.rank_size)]
    keys: dict[str, Callable[[Segment], Any]] = {
        "the rows lie by source, then by expert": lambda s: (s.source, s.expert),
        "the rows of an expert lie by tp rank, then by ep rank": lambda s: (
            s.expert,
            s.source % call.tp_size,
            s.source,
        ),
        "the experts lie in reverse": lambda s: (-s.expert, s.source),
        "the sources lie in reverse": lambda s: (s.expert, -s.source),
    }
    for text, key in keys.items():
        layout = [_laid(sorted(own, key=key)) for own in right]
        if [[s.expert, s.source] for own in layout for s in own] != [
            [s.expert, s.source] for own in right for s in own
        ]:
            yield Fault(ORDER, text, partial(_expert_outputs, call, tensors, layout=layout))
    local = call.local_experts
    turns = {
        "the next expert": np.roll(np.arange(local), -1),
        "the expert before": np.roll(np.arange(local), 1),
        "the same expert counted from the end": np.arange(local)[::-1],
    }
    for text, turn in turns.items() if local > 1 else ():
        weights = [weight[turn] for weight in tensors.weights]
        other = replace(tensors, weights=weights)
        words = f"the weights were those of {text}"
        yield Fault(ORDER, words, partial(_expert_outputs, call, other))
        scales = [
            replace(own, scale=own.scale.reshape(local, -1)[turn].reshape(-1))
            for own in tensors.scales
        ]
        if scales:
            other = replace(tensors, scales=scales)
            words = f"the scales were those of {text}"
            yield Fault(ORDER, words, partial(_expert_outputs, call, other))


def _laid(order: Sequence[Segment]) -> list[Segment]:
    """Return segments one after the other."""
    found, row = [], 0
    for one in order:
        found.append(replace(one, row=row))
        row += one.rows
    return found


def _variants(call: LinearParallel, tensors: Tensors) -> Iterator[tuple[str, str, Multiply]]:
    """Yield kind and sentence of wrong products, and what makes them."""
    if not call.is_quantised:
        return
    own = tensors.scales[0]
    is_int8 = tensors.xs[0].dtype == np.int8
    yield SCALE, "the scale was applied twice", partial(_scaled, 2)
    yield SCALE, "the scale is missing", partial(_scaled, 0)
    yield SCALE, "the 13 lowest bits of the scale were not read", _cut_scale
    if own.token_scale is not None:
        yield SCALE, "the scale per token was applied twice", partial(_token_scaled, 2)
        yield SCALE, "the scale per token is missing", partial(_token_scaled, 0)
        if is_int8:
            dtype = output_dtype(call, "int8")
            text = f"rounded to {dtype} before the scale per token"
            yield "rounding", text, partial(_rounded_first, dtype)
    if own.bias is not None and own.bias.size:
        name = "bias" if is_int8 else "offset"
        yield BIAS, f"the {name} was added after the scale", _biased_late
        yield BIAS, f"the {name} was added twice", _biased_twice
        yield BIAS, f"the {name} is missing", _unbiased
    if is_int8:
        for words, total in _SATURATING.items():
            yield SATURATION, words, partial(_from_total, total)


def _scaled(
    times: int, x: Array, weight: Array, own: Scales, mode: int, group: int, product: Product
) -> Single:
    """Return a product with its scale so many times."""
    if x.dtype == np.int8:
        y = with_bias(integer_product(x, weight), own).astype(np.float32)
        for _ in range(times):
            y = _times(y, scale_values(own.scale).reshape(1, -1))
        return with_token_scale(y, own)
    scale, offset = scale_and_offset(weight, own, group)
    factor = weight.astype(np.float32) + offset
    for _ in range(times):
        factor = _times(factor, scale)
    return _with_weight(x, factor, own, product)


def _cut_scale(x: Array, weight: Array, own: Scales, *how: Any) -> Single:
    bits = scale_values(own.scale).view(np.uint32) >> np.uint32(13) << np.uint32(13)
    cut = replace(own, scale=bits.view(np.float32))
    return quantised_product(x, weight, cut, *how)


def _token_scaled(times: int, x: Array, weight: Array, own: Scales, *how: Any) -> Single:
    y = quantised_product(x, weight, replace(own, token_scale=None), *how)
    for _ in range(times):
        y = with_token_scale(y, own)
    return y


def _rounded_first(dtype: str, x: Array, weight: Array, own: Scales, *how: Any) -> Single:
    y = quantised_product(x, weight, replace(own, token_scale=None), *how)
    return with_token_scale(widened(rounded(y, dtype), dtype), own)


def _biased_late(
    x: Array, weight: Array, own: Scales, mode: int, group: int, product: Product
) -> Single:
    if own.bias is None:  # of a leaf that is not the first
        return quantised_product(x, weight, own, mode, group, product)
    if x.dtype == np.int8:
        y = quantised_product(x, weight, replace(own, bias=None, token_scale=None), mode, group)
        return with_token_scale(y + own.bias.astype(np.float32).reshape(1, -1), own)
    scale, offset = scale_and_offset(weight, own, group)
    return _with_weight(x, _times(weight.astype(np.float32), scale) + offset, own, product)


def _biased_twice(x: Array, weight: Array, own: Scales, *how: Any) -> Single:
    twice = None if own.bias is None else own.bias + own.bias
    return quantised_product(x, weight, replace(own, bias=twice), *how)


def _unbiased(x: Array, weight: Array, own: Scales, *how: Any) -> Single:
    return quantised_product(x, weight, replace(own, bias=None), *how)


def _with_weight(x: Array, factor: Single, own: Scales, product: Product) -> Single:
    """Return the product of W8A16 with a weight that is still to be rounded."""
    dtype = name_of(x)
    y = product(widened(x, dtype), widened(rounded(factor, dtype), dtype))
    return with_token_scale(y, own)


Total = npt.NDArray[np.int64]


def _from_total(
    make: Callable[[Total, Total], Total], x: Array, weight: Array, own: Scales, *how: Any
) -> Single:
    """Return a product of W8A8 whose sum was made otherwise."""
    total = make(x.astype(np.int64), weight.astype(np.int64))
    if make is not _clipped_sum:
        total = with_bias(total.astype(np.int32), own).astype(np.int64)
    elif own.bias is not None and own.bias.size:
        total = np.clip(total + own.bias.reshape(1, -1), -(2**31), 2**31 - 1)
    y = _times(total.astype(np.float32), scale_values(own.scale).reshape(1, -1))
    return with_token_scale(y, own)


def _pairs(x: Total, weight: Total) -> Total:
    """Return sums of products of two neighbours, each clipped to 16 bits."""
    total = np.zeros((x.shape[0], weight.shape[1]), np.int64)
    for k in range(0, x.shape[1], 2):
        total += np.clip(x[:, k : k + 2] @ weight[k : k + 2], -(2**15), 2**15 - 1)
    return total


def _shifted_x(x: Total, weight: Total) -> Total:
    return np.asarray(_pairs(x + 128, weight) - 128 * weight.sum(axis=0))


def _shifted_weight(x: Total, weight: Total) -> Total:
    return np.asarray(_pairs(x, weight + 128) - 128 * x.sum(axis=1, keepdims=True))


def _moved_sign(x: Total, weight: Total) -> Total:
    """Return sums of |x| and of weight with x's sign, which is lost where the weight is -128."""
    total = np.zeros((x.shape[0], weight.shape[1]), np.int64)
    for k in range(0, x.shape[1], 2):
        signed = np.sign(x[:, k : k + 2, None]) * weight[None, k : k + 2]
        signed = np.where(signed == 128, -128, signed)
        pair = (np.abs(x[:, k : k + 2, None]) * signed).sum(axis=1)
        total += np.clip(pair, -(2**15), 2**15 - 1)
    return total


def _clipped_sum(x: Total, weight: Total) -> Total:
    return np.clip((x.astype(np.float64) @ weight).astype(np.int64), -(2**31), 2**31 - 1)


_SATURATING: dict[str, Callable[[Total, Total], Total]] = {
    "sums of two products saturated at 16 bits, x shifted by 128": _shifted_x,
    "sums of two products saturated at 16 bits, the weight shifted by 128": _shifted_weight,
    "sums of two products saturated at 16 bits": _pairs,
    "the sign of x was lost where the weight is -128": _moved_sign,
    "sums saturated at 32 bits": _clipped_sum,
}


def _times(left: Single, right: Single) -> Single:
    with np.errstate(all="ignore"):
        return np.asarray(left * right, np.float32)
