"""RowCall: a row of a case file as a Call."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from collops.golden.case_files.csv_row import MOST_RANKS
from collops.golden.case_files.row_case import (
    expected_outputs,
    rank_operator,
    rank_params,
    row_bounds,
    row_layout,
)
from collops.golden.case_files.row_inputs import rank_input, rank_inputs
from collops.golden.data.dtypes import storage
from collops.golden_run.calls import Argument, Call, Truth

if TYPE_CHECKING:
    from collops.golden.case_files.csv_row import CsvRow, Expectation, RowTensor

# If a call must fail, a tensor of more bytes than these is passed as a description.
MOST_BYTES = 1 << 30
_REDUCTIONS = ("reduceType", "allReduceType")
_THREADS = 1


@dataclass(frozen=True)
class RowCall(Call):
    """A row, with the options of the command line for its data.

    `instead` replaces the expected end if collops differs from ATB by intent.
    """

    row: CsvRow
    seed: int = 0
    same_data: bool = False
    instead: Expectation | None = None

    @property
    def operation(self) -> str:
        """The operator's name in case files, such as ``AllGatherVOperation``."""
        return self.row.operator

    def rank_operation(self, rank: int) -> str:
        """The same of the operator that a rank runs; empty if it takes no part."""
        return rank_operator(self.row, rank)

    @property
    def rank_size(self) -> int:
        """Ranks of the call; 1 if creation must refuse the row's number of ranks."""
        size = self.row.rank_size
        return size if 1 <= size <= MOST_RANKS else 1

    @property
    def threads(self) -> bool:
        """Whether the ranks are threads, by the row's commMode."""
        return self.row.params.get("commMode") == _THREADS

    @property
    def expected(self) -> Expectation:
        """The expected end of the call: no error, or an error at a step."""
        return self.instead or self.row.expected

    @property
    def stops_at(self) -> str:
        """The step that must fail; creation if the row has no tensors."""
        return "create" if self.row.expected.stage == "create" else self.expected.stage

    @property
    def needs_ml_dtypes(self) -> bool:
        """Whether the tensors need ml_dtypes."""
        return any(t.dtype == "bfloat16" for t in (*self.row.inputs, *self.row.outputs))

    def param(self, rank: int) -> str:
        """A rank's parameter struct as JSON."""
        return json.dumps(rank_params(self.row, rank))

    def inputs(self, rank: int) -> list[Argument]:
        """A rank's input tensors.

        Descriptions if one of them cannot be made, or if no data is needed, as for infer_shape.
        """
        tensors = self.row.inputs
        has_files = any(tensor.file for tensor in tensors)
        if not all(tensor.can_be_made for tensor in tensors) or (
            self.stops_at == "infer_shape" and not has_files
        ):
            return [_described(tensor) for tensor in tensors]
        return [self._input(rank, position) for position in range(len(tensors))]

    def _input(self, rank: int, position: int) -> Argument:
        tensor = self.row.inputs[position]
        if self._is_too_large(tensor) and not tensor.file:
            return _described(tensor)
        array = rank_input(self.row, rank, position, seed=self.seed, same_data=self.same_data)
        return Argument(tensor.dtype, array.shape, tensor.format, array)

    def _is_too_large(self, tensor: RowTensor) -> bool:
        """Whether the tensor of a call that must fail is passed as a description."""
        if not self.expected.stage or not tensor.can_be_made:
            return False
        return math.prod(tensor.shape) * storage(tensor.dtype).itemsize > MOST_BYTES

    def outputs(self, rank: int) -> list[Argument]:
        """The outputs as the row states them; dim 0 is unknown if the ranks' rows differ."""
        if self.rank_operation(rank) != self.operation:
            return [] if self.shows_input(rank) else [_described(self.row.inputs[0])]
        own_rows = any("{rank}" in tensor.file for tensor in self.row.inputs)
        own_rows = own_rows or any(self.row.params.get(k) for k in ("gatherRows", "scatterRows"))
        return [
            replace(_described(t), own_rows=own_rows, only_described=self._is_too_large(t))
            for t in self.row.outputs
        ]

    def truth(self) -> Truth:
        """The expected results, of golden or of the row's files."""
        row, ranks = self.row, range(self.rank_size)
        inputs = [rank_inputs(row, r, seed=self.seed, same_data=self.same_data) for r in ranks]
        per_rank = expected_outputs(row, inputs)
        reductions = (row.params[key] for key in _REDUCTIONS if key in row.params)
        return Truth(
            outputs=list(zip(*per_rank, strict=True)),
            dtype=row.inputs[0].dtype,
            layout=row_layout(row, inputs),
            bounds=row_bounds(row, inputs),
            reduce=str(next(reductions, "sum")),
            terms=inputs[0][0].shape[-1] if inputs[0][0].ndim else 1,
        )


def _described(tensor: RowTensor) -> Argument:
    return Argument(tensor.dtype, tensor.shape, tensor.format)
