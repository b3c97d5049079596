"""What golden knows of each operator of case files, one row of a table per operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..data.bounds import Bound
from ..data.dtypes import Array
from ..data.exchange import Exchange
from ..operators.all_gather_v import all_gather_v
from ..operators.all_to_all_v import all_to_all_v
from ..operators.even_collectives import even_blocks, even_outputs, gathers
from ..operators.layout import (
    Layout,
    exchange_layout,
    gather_layout,
    message_layout,
    product_layout,
    scatter_layout,
)
from ..operators.linear_parallel.bounds import linear_parallel_bounds
from ..operators.linear_parallel.groups import LinearParallel
from ..operators.linear_parallel.reference import linear_parallel
from ..operators.reduce_scatter_v import reduce_scatter_v
from ..operators.send_recv import send_recv
from .csv_row import OPERATORS, CsvRow
from .message_row import message_of
from .row_lists import COUNT_LISTS, exchange_of_lists, rank_list

Inputs = Sequence[Sequence[Array]]
Outputs = list[list[Array]]


@dataclass(frozen=True)
class RowReference:
    """One operator's row of the table.

    `outputs` and `layout` take a row and the inputs of every rank. `customized` says what the word
    customize means for each input: "own count", "counts" and "displacements" of the even split (of
    an all-to-all, of what a rank sends; "counts received" and "displacements received"), the "zero"
    of a y; "x", and every input beyond, is random. `bounds` are the largest absolute errors of each
    rank's first output, None where it is exact. `inputs` are the numbers of inputs that a reference
    can have. `in_place`: the operator has no output and changes its first input.

    Example:
        >>> REFERENCES["AllGatherVOperation"].customized[1]
        'own count'
    """

    outputs: Callable[[CsvRow, Inputs], Outputs]
    layout: Callable[[CsvRow, Inputs], Layout]
    customized: tuple[str, ...] = ("x",)
    inputs: tuple[int, ...] = (1,)
    bounds: Callable[[CsvRow, Inputs], list[Bound]] | None = None
    in_place: bool = False


def linear_call(row: CsvRow) -> LinearParallel:
    """Return the parameters of a LinearParallel row.

    gatherRows and scatterRows of a row are those of every rank.

    Example:
        >>> row = CsvRow("a.csv:2", 1, "x", "LinearParallelOperation",
        ...              {"rankSize": 2, "type": 1, "scatterRows": [1, 3]})
        >>> linear_call(row).scatter_rows
        ((1, 3), (1, 3))
    """
    given = row.params
    dims: dict[str, Any] = given.get("twoDimTPInfo", {})
    lists = [tuple(given.get(name, ())) for name in ("gatherRows", "scatterRows")]
    gather, scatter = (((rows,) * row.rank_size) if rows else () for rows in lists)
    return LinearParallel(
        type=int(given.get("type", 0)),
        rank_size=row.rank_size,
        ag_dim=int(dims.get("agDim", 0)),
        rs_dim=int(dims.get("rsDim", 0)),
        inner_dim_is_ag=bool(dims.get("innerDimIsAg", 1)),
        trans_weight=bool(given.get("transWeight", True)),
        has_residual=bool(given.get("hasResidual", False)),
        keep_intermediate=bool(given.get("keepIntermediate", False)),
        gather_rows=gather,
        scatter_rows=scatter,
    )


def _gathered_v(row: CsvRow, inputs: Inputs) -> Outputs:
    xs, counts, displs = [own[0] for own in inputs], inputs[0][2].tolist(), inputs[0][3].tolist()
    return [[all_gather_v(xs, counts, displs, len(own[4]), rank=r)] for r, own in enumerate(inputs)]


def _gathered_v_layout(row: CsvRow, inputs: Inputs) -> Layout:
    return gather_layout(inputs[0][2].tolist(), inputs[0][3].tolist(), outputs=len(inputs))


def _scattered_v(row: CsvRow, inputs: Inputs) -> Outputs:
    xs, counts, displs = [own[0] for own in inputs], inputs[0][1].tolist(), inputs[0][2].tolist()
    rows = [len(own[4]) for own in inputs]
    dtype = row.inputs[0].dtype
    return [[y] for y in reduce_scatter_v(xs, counts, displs, rows, _reduction(row), dtype)]


def _scattered_v_layout(row: CsvRow, inputs: Inputs) -> Layout:
    counts, displs = inputs[0][1].tolist(), inputs[0][2].tolist()
    return scatter_layout([own[0] for own in inputs], counts, displs, _reduction(row))


def _reduction(row: CsvRow) -> str:
    field = "allReduceType" if row.operator == "AllReduceOperation" else "reduceType"
    return str(row.params.get(field, "sum"))


def _evenly(row: CsvRow, inputs: Inputs) -> Outputs:
    outputs = even_outputs(
        OPERATORS[row.operator],
        [own[0] for own in inputs],
        op=_reduction(row),
        dtype=row.inputs[0].dtype,
        root=int(row.params.get("rankRoot", 0)),
        transpose=bool(row.params.get("transpose", False)),
    )
    return [[output] for output in outputs]


def _evenly_layout(row: CsvRow, inputs: Inputs) -> Layout:
    xs, operator = [own[0] for own in inputs], OPERATORS[row.operator]
    root = int(row.params.get("rankRoot", 0))
    counts, displs = even_blocks(operator, len(xs), xs[0].size, root)
    if gathers(operator):
        return gather_layout(counts, displs, outputs=len(xs))
    return scatter_layout(xs, counts, displs, _reduction(row))


def _exchanged(row: CsvRow, inputs: Inputs) -> Outputs:
    outputs = all_to_all_v([own[0] for own in inputs], _exchange(row, inputs))
    return [[output] for output in outputs]


def _exchanged_layout(row: CsvRow, inputs: Inputs) -> Layout:
    call = _exchange(row, inputs)
    return exchange_layout(call.recv_counts, call.rdispls)


def _exchange(row: CsvRow, inputs: Inputs) -> Exchange:
    """Return who sends what to whom, by each rank's tensors or by its struct."""
    ranks = range(len(inputs))
    if row.operator == "AllToAllVOperation":
        lists = {name: [rank_list(row, name, rank) for rank in ranks] for name in COUNT_LISTS}
    else:
        positions = enumerate(COUNT_LISTS, start=1)
        lists = {name: [own[at].tolist() for own in inputs] for at, name in positions}
    return exchange_of_lists(lists)


def _delivered(row: CsvRow, inputs: Inputs) -> Outputs:
    return [[x] for x in send_recv([own[0] for own in inputs], *message_of(row))]


def _delivered_layout(row: CsvRow, inputs: Inputs) -> Layout:
    return message_layout([own[0].size for own in inputs], *message_of(row))


def _products(row: CsvRow, inputs: Inputs) -> Outputs:
    return linear_parallel(linear_call(row), *_factors(inputs), row.inputs[0].dtype)


def _product_bounds(row: CsvRow, inputs: Inputs) -> list[Bound]:
    return linear_parallel_bounds(linear_call(row), *_factors(inputs), row.inputs[0].dtype)


def _product_layout(row: CsvRow, inputs: Inputs) -> Layout:
    call = linear_call(row)
    columns = inputs[0][1].shape[-2 if call.trans_weight else -1]
    return product_layout(call, [own[0].shape for own in inputs], columns)


def _factors(inputs: Inputs) -> tuple[list[Array], list[Array], list[Array]]:
    xs, weights = ([own[at] for own in inputs] for at in (0, 1))
    return xs, weights, [own[2] for own in inputs if len(own) > 2]


REFERENCES = {
    "AllGatherVOperation": RowReference(
        outputs=_gathered_v,
        layout=_gathered_v_layout,
        customized=("x", "own count", "counts", "displacements", "zero"),
        inputs=(5,),
    ),
    "ReduceScatterVOperation": RowReference(
        outputs=_scattered_v,
        layout=_scattered_v_layout,
        customized=("x", "counts", "displacements", "own count", "zero"),
        inputs=(5,),
    ),
    "LinearParallelOperation": RowReference(
        outputs=_products,
        layout=_product_layout,
        inputs=(2, 3),
        bounds=_product_bounds,
    ),
    "AllGatherOperation": RowReference(outputs=_evenly, layout=_evenly_layout),
    "ReduceScatterOperation": RowReference(outputs=_evenly, layout=_evenly_layout),
    "AllReduceOperation": RowReference(outputs=_evenly, layout=_evenly_layout),
    "BroadcastOperation": RowReference(outputs=_evenly, layout=_evenly_layout, in_place=True),
    "AllToAllOperation": RowReference(outputs=_evenly, layout=_evenly_layout),
    "AllToAllVOperation": RowReference(outputs=_exchanged, layout=_exchanged_layout),
    "AllToAllVV2Operation": RowReference(
        outputs=_exchanged,
        layout=_exchanged_layout,
        customized=(
            "x",
            "counts",
            "displacements",
            "counts received",
            "displacements received",
            "zero",
        ),
        inputs=(6,),
    ),
    # What each rank's tensor holds after the message: the receiver's output, all others' own x.
    "SendOperation": RowReference(outputs=_delivered, layout=_delivered_layout),
    "RecvOperation": RowReference(outputs=_delivered, layout=_delivered_layout),
}
