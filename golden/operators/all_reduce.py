"""AllReduce: the reduction of every rank's x, on every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..data.acl_types import dtype_number
from ..data.dtypes import Array, name_of, rounded
from ..data.kinds import fill
from ..data.reduction import ATB_REDUCE_OPS, reduce_ranks
from .case import Case
from .case_lists import ALL_PAIRS, HUGE, every_dim, every_reduction, reduced_data
from .even import Even, check_alike
from .operator import COMPUTES, Input, Inputs, Operator, Outputs, Params, each, xs_of
from .output_layout import Fault, OutputLayout


def all_reduce(xs: Sequence[Array], op: str = "sum", dtype: str | None = None) -> Array:
    """Return the output of AllReduce, the same on every rank.

    `output = xs[0] op xs[1] op ... op xs[P-1]`, in rank order

    The arithmetic is that of `reduction.reduce_ranks`, exact to the bit.

    Args:
        xs: x of every rank, of one shape and dtype; bfloat16 as uint16 bits.
        op: sum, max, min, prod, avg, or of integers band, bor, bxor.
        dtype: name of x's dtype; None reads it from the arrays.

    Returns:
        A new array of x's shape and dtype.

    Raises:
        ValueError: shapes or dtypes differ, or the dtype has no such `op`.

    Example:
        >>> all_reduce([np.array([1, 5], np.int8), np.array([3, 2], np.int8)], "max").tolist()
        [3, 5]
    """
    check_alike("all_reduce", xs)
    return reduce_ranks(xs, op, dtype or name_of(xs[0]))


def all_reduce_quantised(
    xs: Sequence[Array], scales: Sequence[Array], offsets: Sequence[Array]
) -> list[Array]:
    """Return the outputs of a quantised AllReduce, per rank.

    `output_r = float16((float32(sum of the ranks' x) + float32(P) * float32(offset_r)) *
    float32(scale_r))`. The sum is int32; each step in float32 is rounded to nearest even.

    Args:
        xs: x of every rank, int8, of one shape.
        scales: scale of every rank, float16: [1], or [n] or [1, n] for the n columns of x.
        offsets: offset of every rank, float16 [1].

    Raises:
        ValueError: shapes or dtypes differ, or a scale or offset does not fit.

    Example:
        >>> xs = [np.array([[100, -7]], np.int8), np.array([[100, 3]], np.int8)]
        >>> scales, offsets = [np.array([0.5, 2], np.float16)] * 2, [np.ones(1, np.float16)] * 2
        >>> [y.tolist() for y in all_reduce_quantised(xs, scales, offsets)]
        [[[101.0, -4.0]], [[101.0, -4.0]]]
    """
    check_alike("all_reduce", xs)
    total = np.sum([x.astype(np.int32) for x in xs], axis=0, dtype=np.int32).astype(np.float32)
    columns = xs[0].shape[-1]
    outputs = []
    for r, (scale, offset) in enumerate(zip(scales, offsets, strict=True)):
        if xs[r].dtype != np.int8 or scale.shape not in ((1,), (columns,), (1, columns)):
            raise ValueError(f"all_reduce: scale of rank {r} is {list(scale.shape)}")
        if offset.shape != (1,):
            raise ValueError(f"all_reduce: offset of rank {r} is {list(offset.shape)}, not [1]")
        with np.errstate(all="ignore"):
            shift = np.float32(len(xs)) * offset.astype(np.float32)
            y = (total + shift) * scale.reshape(-1).astype(np.float32)
        outputs.append(rounded(y, "float16"))
    return outputs


_EVEN = Even(
    "all_reduce",
    lambda size, count, root: ([count] * size, [0] * size),
    rows=lambda size, shape: shape[0],
    reduction="allReduceType",
)


def _cases(size: int) -> Iterator[Case]:
    """Yield every dtype with every op, kind of data and shape once."""
    case = partial(_EVEN.case, size)
    yield from every_reduction(case, (size * -(-ALL_PAIRS // size), 1))
    yield from reduced_data(case, (5 * size, 4))
    yield from every_dim(case, 3, op="sum")
    # Fewer elements than ranks, and one more than they can share evenly.
    yield case("shape-one", (1,), "uint8", op="max")
    yield case("shape-odd", (3 * size + 1,), "bfloat16", op="sum")
    yield case("shape-no-rows", (0, 4), "float16", op="sum")
    yield case("shape-huge", (HUGE,), "float64", op="sum")
    for name, mode, shape, kind in (
        ("tensor", 1, (5, 16), "random"),
        ("channel", 2, (3, 2, 48), "random"),
        ("special", 2, (2, 64), "special"),
        ("no_rows", 1, (0, 16), "random"),
        ("one_dim", 1, (80,), "special"),
        ("wide", 2, (9, 4112), "random"),
    ):
        plain = case(f"quantised-{name}", shape, "int8", op="sum", kind=kind)
        yield replace(plain, quant_type=mode)


def _is_quantised(params: Params) -> bool:
    # A row with an unknown mode is run, because creation must refuse it.
    mode = params.get("quantType")
    return isinstance(mode, int) and mode in (1, 2)


def _params(case: Case) -> dict[str, Any]:
    more = {"quantType": case.quant_type, "outDataType": dtype_number(case.output_dtype)}
    return _EVEN.op_param(case) | (more if case.quant_type else {})


def _tensors(case: Case, rank: int) -> dict[str, Array]:
    shape = case.x_shapes[rank]
    tensors = {"x": fill(shape, case.dtype, rank, case.seed, case.kind)}
    if case.quant_type:
        scales: tuple[int, ...] = (1,) if case.quant_type == 1 else (shape[-1],)
        scales = (1, *scales) if case.quant_type == 2 and rank % 2 else scales
        tensors["scale"] = fill(scales, "float16", rank + 1, case.seed, case.kind)
        tensors["offset"] = np.array([0.3 * rank - 1], np.float16)
    return tensors


def _outputs(params: Params, inputs: Inputs) -> Outputs:
    xs = xs_of(inputs)
    if _is_quantised(params):
        return each(all_reduce_quantised(xs, *([own[at] for own in inputs] for at in (1, 2))))
    return each(all_reduce(xs, _EVEN.op(params)) for _ in inputs)


def _layout(params: Params, inputs: Inputs) -> OutputLayout:
    plain = _EVEN.layout(params, inputs)
    if not _is_quantised(params):
        return plain
    # The sum is not the output, and explain must not take it for that.
    return OutputLayout(blocks=plain.blocks, faults=tuple(_faults(inputs)))


def _faults(inputs: Inputs) -> Iterator[Fault]:
    """Yield the faults of a quantised call, whose steps are those of all_reduce_quantised."""
    xs = [own[0].astype(np.float32) for own in inputs]
    scales, offsets = ([own[at].astype(np.float32) for own in inputs] for at in (1, 2))
    size, total = np.float32(len(xs)), np.sum(xs, axis=0, dtype=np.float32)

    def added_in_float16(scale: Array, offset: Array) -> Array:
        parts = [(x.astype(np.float16) + offset.astype(np.float16)) for x in xs]
        scaled = [part * scale.astype(np.float16) for part in parts]
        return np.asarray(sum(scaled[1:], scaled[0]))

    clipped = np.clip(total, -128, 127)
    wrapped = total.astype(np.int64).astype(np.int8).astype(np.float32)
    ways: dict[tuple[str, str], Callable[[Array, Array], Array]] = {
        ("wrong scale", "the scale was applied twice"): lambda s, o: (total + size * o) * s * s,
        ("wrong scale", "the scale is missing"): lambda s, o: total + size * o,
        ("wrong bias", "the offset was added once, not by every rank"): lambda s, o: (
            (total + o) * s
        ),
        ("wrong bias", "the offset was added after the scale"): lambda s, o: total * s + size * o,
        ("wrong bias", "the offset is missing"): lambda s, o: total * s,
        ("int8 saturation", "the sum saturated at 8 bits"): lambda s, o: (clipped + size * o) * s,
        ("int8 saturation", "the sum wrapped at 8 bits"): lambda s, o: (wrapped + size * o) * s,
        ("rounding", "every rank's part was scaled and added in float16"): added_in_float16,
    }

    def outputs(way: Callable[[Array, Array], Array]) -> list[Array]:
        with np.errstate(all="ignore"):
            pairs = zip(scales, offsets, strict=True)
            return [rounded(way(s.reshape(-1), o), "float16") for s, o in pairs]

    for (kind, text), way in ways.items():
        yield Fault(kind, text, partial(outputs, way))


_SCALES = (Input("scale", "float16"), Input("offset", "float16"))

ALL_REDUCE = Operator(
    name=_EVEN.name,
    operation="AllReduceOperation",
    cases=_cases,
    outputs=_outputs,
    layout=_layout,
    even_case=_EVEN.case,
    params=_params,
    more_inputs=lambda params: _SCALES if _is_quantised(params) else (),
    tensors=_tensors,
    accuracy=COMPUTES,
    reductions=(*ATB_REDUCE_OPS, "prod"),
    more_dtypes=lambda params: set() if _is_quantised(params) else {"float64", "uint8"},
)
