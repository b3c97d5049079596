"""LinearParallel's entry in the table of operators.

Example:
    >>> list(LINEAR_PARALLEL.input_numbers)
    [2, 3]
"""

from __future__ import annotations

import math
from typing import Any

from ...data.bounds import Bound
from ...data.dtypes import Array, name_of
from ..case import Case
from ..operator import COMPUTES, Input, Inputs, Operator, Outputs, Params, is_per_rank
from ..output_layout import Block, OutputLayout
from .bounds import linear_parallel_bounds
from .cases import linear_parallel_cases
from .data import linear_inputs
from .groups import LinearParallel, place
from .reference import linear_parallel, output_block


def _linear_call(params: Params, rank_size: int) -> LinearParallel:
    """Return OpParam's call; gatherRows and scatterRows are one list, or a list per rank."""
    dims: dict[str, Any] = params.get("twoDimTPInfo", {})

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
    )


def _call_of(case: Case) -> LinearParallel:
    if case.linear is None:
        raise ValueError(f"{case.id}: a case of linear_parallel has its parameters in `linear`")
    return case.linear


def _params(case: Case) -> dict[str, Any]:
    call = _call_of(case)
    fields = {
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
    lists = {"gatherRows": call.gather_rows, "scatterRows": call.scatter_rows}
    return fields | {name: [list(own) for own in rows] for name, rows in lists.items() if rows}


def _tensors(case: Case, rank: int) -> dict[str, Array]:
    how = (case.columns, case.dtype, case.kind, case.seed)
    return linear_inputs(_call_of(case), rank, case.x_shapes[rank], *how)


def _factors(inputs: Inputs) -> tuple[list[Array], list[Array], list[Array]]:
    xs, weights = ([own[at] for own in inputs] for at in (0, 1))
    return xs, weights, [own[2] for own in inputs if len(own) > 2]


def _outputs(params: Params, inputs: Inputs) -> Outputs:
    return linear_parallel(_linear_call(params, len(inputs)), *_factors(inputs))


def _bounds(params: Params, inputs: Inputs) -> list[Bound]:
    call = _linear_call(params, len(inputs))
    return linear_parallel_bounds(call, *_factors(inputs), name_of(inputs[0][0]))


def _layout(params: Params, inputs: Inputs) -> OutputLayout:
    """Return which rows of each output come from which rank's x."""
    call = _linear_call(params, len(inputs))
    x_shapes = [own[0].shape for own in inputs]
    columns = inputs[0][1].shape[-2 if call.trans_weight else -1]
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
    return OutputLayout(blocks=tuple(outputs))


def _outside(params: Params) -> str:
    if params.get("type", 0) in (5, 6):
        return "MoE"
    # A row with an unknown mode is run, because creation must refuse it.
    mode = params.get("quantType")
    return "quantised" if isinstance(mode, int) and mode in range(4) else ""


LINEAR_PARALLEL = Operator(
    name="linear_parallel",
    operation="LinearParallelOperation",
    cases=linear_parallel_cases,
    outputs=_outputs,
    layout=_layout,
    bounds=_bounds,
    params=_params,
    inputs=(Input("weight"), Input("residual", optional=True)),
    tensors=_tensors,
    accuracy=COMPUTES,
    more_dtypes=lambda params: {"float32"},
    outside=_outside,
)
