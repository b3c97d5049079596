"""LinearParallel's entry in the table of operators.

Example:
    >>> list(LINEAR_PARALLEL.input_numbers({"quantType": 3, "hasResidual": True}))
    [6]
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...data.acl_types import dtype_from_number, dtype_number
from ...data.bounds import Bound
from ...data.dtypes import Array, name_of
from ..case import Case
from ..operator import COMPUTES, Input, Inputs, Operator, Outputs, Params, each, is_per_rank
from ..output_layout import Block, OutputLayout
from .bounds import expert_bounds, linear_parallel_bounds
from .cases import linear_parallel_cases
from .data import linear_inputs
from .experts import Tokens, experts, segments
from .faults import Tensors, linear_faults
from .groups import EXPERTS_ALL_TO_ALL, LinearParallel, place
from .leaf_faults import leaf_faults
from .quantised import PER_TOKEN, Scales
from .quantised_data import quantised_inputs
from .reference import linear_parallel, output_block


def linear_call(params: Params, rank_size: int) -> LinearParallel:
    """Return OpParam's call; gatherRows, scatterRows and sumColumns are a list, or one per rank.

    Example:
        >>> linear_call({"type": 5, "moeInfo": {"epSize": 2}}, 2).ep_size
        2
    """
    dims: dict[str, Any] = params.get("twoDimTPInfo", {})
    moe: dict[str, Any] = params.get("moeInfo", {})
    out_dtype = int(params.get("outDataType", -1))

    def lists(name: str) -> tuple[tuple[int, ...], ...]:
        rows = params.get(name, ())
        if is_per_rank(rows):
            return tuple(tuple(own) for own in rows)
        return (tuple(rows),) * rank_size if rows else ()

    return LinearParallel(
        type=int(params.get("type", 0)),
        rank_size=rank_size,
        ag_dim=int(dims.get("agDim", 0)),
        rs_dim=int(dims.get("rsDim", 0)),
        inner_dim_is_ag=bool(dims.get("innerDimIsAg", 1)),
        trans_weight=bool(params.get("transWeight", True)),
        has_residual=bool(params.get("hasResidual", False)),
        keep_intermediate=bool(params.get("keepIntermediate", False)),
        gather_rows=lists("gatherRows"),
        scatter_rows=lists("scatterRows"),
        quant_type=int(params.get("quantType", -1)),
        quant_group_size=int(params.get("quantGroupSize", 0)),
        out_dtype=dtype_from_number(out_dtype) if out_dtype >= 0 else "",
        local_experts=int(moe.get("localExpertNums", 1)),
        ep_size=int(moe.get("epSize", 1)),
        tp_size=int(moe.get("tpSize", 1)),
        sum_leaves=int(params.get("sumLeaves", 0)),
        sum_columns=lists("sumColumns"),
    )


def _call_of(case: Case) -> LinearParallel:
    if case.linear is None:
        raise ValueError(f"{case.id}: a case of linear_parallel has its parameters in `linear`")
    return case.linear


def _params(case: Case) -> dict[str, Any]:
    call = _call_of(case)
    fields: dict[str, Any] = {
        "type": call.type,
        "transWeight": call.trans_weight,
        "hasResidual": call.has_residual,
        "keepIntermediate": call.keep_intermediate,
        "twoDimTPInfo": {
            "agDim": call.ag_dim,
            "rsDim": call.rs_dim,
            "innerDimIsAg": int(call.inner_dim_is_ag),
        },
    }
    if call.is_quantised:
        fields |= {"quantType": call.quant_type, "quantGroupSize": call.quant_group_size}
    if call.out_dtype:
        fields["outDataType"] = dtype_number(call.out_dtype)
    if call.has_experts:
        sizes = {"localExpertNums": call.local_experts, "epSize": call.ep_size}
        fields["moeInfo"] = sizes | {"tpSize": call.tp_size}
    if call.sum_leaves:
        fields["sumLeaves"] = call.sum_leaves
    lists = {"gatherRows": call.gather_rows, "scatterRows": call.scatter_rows}
    lists["sumColumns"] = call.sum_columns
    return fields | {name: [list(own) for own in rows] for name, rows in lists.items() if rows}


def _inputs_of(params: Params) -> tuple[Input, ...]:
    """Return the inputs behind x in ATB's order, which depends on the kind of the product."""
    quantised, has_experts = _is_quantised(params), params.get("type") in (5, 6)
    tokens, length = Input("tokens", "int32", "tokens"), Input("maxOutputSize", "int32", "length")
    given = [Input("weight", "int8" if quantised else "")]
    if quantised:
        given += [] if has_experts else [Input("bias")]
        given.append(Input("scale", holds="scale"))
    if params.get("hasResidual", False):
        given.append(Input("residual"))
    if params.get("quantType") == PER_TOKEN:
        given.append(Input("perTokenScale", "float32"))
    return (*given, tokens, length) if has_experts else tuple(given)


def _is_quantised(params: Params) -> bool:
    # A row with an unknown mode is run, because creation must refuse it.
    mode = params.get("quantType")
    return isinstance(mode, int) and mode in range(4)


def _tensors(case: Case, rank: int) -> dict[str, Array]:
    call = _call_of(case)
    make = quantised_inputs if call.is_quantised else linear_inputs
    how = (case.columns, case.dtype, case.kind, case.seed)
    tensors = make(call, rank, case.x_shapes[rank], *how)
    if call.has_experts:
        matrix = np.array(case.counts, np.int32)
        tensors["tokens"] = matrix.reshape(call.ep_size, call.ep_size * call.local_experts)
        tensors["maxOutputSize"] = np.zeros(case.rows[rank], np.int32)
    return tensors


def _read(params: Params, inputs: Inputs) -> tuple[LinearParallel, Tensors]:
    """Return a call and its tensors; the matrix of tokens is that of rank 0, which all have."""
    names = ["x", *(one.name for one in _inputs_of(params))]
    named = {name: [own[at] for own in inputs] for at, name in enumerate(names)}
    scales: list[Scales] = []
    if "scale" in named:
        nothing: list[Any] = [None] * len(inputs)
        more = [named.get(name, nothing) for name in ("bias", "perTokenScale")]
        scales = [Scales(*own) for own in zip(named["scale"], *more, strict=True)]
    return linear_call(params, len(inputs)), Tensors(
        named["x"],
        named["weight"],
        named.get("residual", []),
        scales,
        named["tokens"][0] if "tokens" in named else None,
        [len(length) for length in named.get("maxOutputSize", [])],
    )


def _outputs(params: Params, inputs: Inputs) -> Outputs:
    call, own = _read(params, inputs)
    given, added, scales = (call, own.xs, own.weights), own.residuals, own.scales
    if own.tokens is None:
        return linear_parallel(*given, added, scales=scales)
    return each(experts(*given, own.tokens, own.rows, residuals=added, scales=scales))


def _bounds(params: Params, inputs: Inputs) -> list[Bound] | None:
    call, own = _read(params, inputs)
    dtype = name_of(own.xs[0])
    if dtype == "int8" or call.sum_leaves:
        return None
    given = (call, own.xs, own.weights, own.residuals, dtype)
    if own.tokens is not None:
        return expert_bounds(*given, own.tokens, own.rows)
    return linear_parallel_bounds(*given, own.scales)


def _layout(params: Params, inputs: Inputs) -> OutputLayout:
    """Return which rows of each output come from which rank's x."""
    call, own = _read(params, inputs)
    weight = own.weights[0]
    x_shapes = [x.shape for x in own.xs]
    columns = weight.shape[-2 if call.trans_weight else -1]
    faults = (*linear_faults(call, own), *leaf_faults(call, own))
    if own.tokens is not None:
        blocks_of = _expert_blocks(call, own.tokens, columns)
        return OutputLayout(blocks_of, faults=faults, has_tokens=True)
    outputs = []
    for rank in range(call.rank_size):
        first, end, _ = output_block(call, rank, x_shapes)
        blocks, start = [], 0
        for q in place(call, rank).gathered:
            stop = start + math.prod(x_shapes[q][:-1])
            low, high = max(start, first), min(stop, end)
            if low < high:
                blocks.append(Block((low - first) * columns, (high - low) * columns, q))
            start = stop
        outputs.append(tuple(blocks))
    return OutputLayout(blocks=tuple(outputs), faults=faults)


def _expert_blocks(
    call: LinearParallel, tokens: Tokens, columns: int
) -> tuple[tuple[Block, ...], ...]:
    """Return which rows come from which source, or of type 6 from the ranks of which expert."""
    blocks: list[list[Block]] = [[] for _ in range(call.rank_size)]
    for rank in range(call.rank_size):
        for one in segments(call, tokens, rank):
            count = one.rows * columns
            if call.type != EXPERTS_ALL_TO_ALL:
                blocks[rank].append(Block(one.row * columns, count, one.source))
            elif rank % call.tp_size == 0:
                blocks[one.source].append(Block(one.source_row * columns, count, rank))
    return tuple(map(tuple, blocks))


LINEAR_PARALLEL = Operator(
    name="linear_parallel",
    operation="LinearParallelOperation",
    cases=linear_parallel_cases,
    outputs=_outputs,
    layout=_layout,
    bounds=_bounds,
    params=_params,
    inputs=(Input("weight"),),
    more_inputs=_inputs_of,
    tensors=_tensors,
    lists=("gatherRows", "scatterRows", "sumColumns"),
    accuracy=COMPUTES,
    more_dtypes=lambda params: set() if _is_quantised(params) else {"float32"},
)
