"""Call, a case for the ranks that run it and for the process that checks their results."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collops.golden.case_files.csv_row import MOST_RANKS, Expectation
from collops.golden.case_files.manifest import MANIFEST, read_manifest
from collops.golden.case_files.row_case import (
    expected_outputs,
    rank_operator,
    rank_params,
    row_bounds,
    row_layout,
)
from collops.golden.case_files.row_inputs import rank_input, rank_inputs
from collops.golden.case_files.tensor_files import read_entries
from collops.golden.cases import (
    OPERATORS,
    Case,
    case_bounds,
    case_layout,
    struct_fields,
    struct_operator,
)
from collops.golden.data.acl_types import dtype_number
from collops.golden.data.dtypes import name_of, storage
from collops.golden.operators.output_layout import OutputLayout
from collops.golden.operators.table import OPERATIONS

if TYPE_CHECKING:
    from collops.golden.case_files.csv_row import CsvRow, RowTensor
    from collops.golden.data.bounds import Bound
    from collops.golden.data.dtypes import Array
    from collops.golden.operators.operator import Operator


@dataclass(frozen=True)
class Argument:
    """A tensor of a call: golden's array, or None if only a description is passed.

    `own_rows`: dim 0 differs per rank, and infer_shape returns it. `only_described`: the tensor is
    passed as a description although memory could be allocated.
    """

    dtype: str
    shape: tuple[int, ...]
    format: str = "nd"
    array: Array | None = field(default=None, compare=False)
    own_rows: bool = False
    only_described: bool = False


@dataclass(frozen=True)
class Truth:
    """The expected results: per output, one array of each rank.

    `bounds` are the largest errors of the first output, None if it is exact; `reduce` is the
    reduction and `terms` the number of products in an element, both for ATB's tolerances.
    """

    outputs: Sequence[Sequence[Array]]
    dtype: str
    layout: OutputLayout = field(default_factory=OutputLayout)
    bounds: Sequence[Bound] | None = None
    reduce: str = "sum"
    terms: int = 1


class Call(ABC):
    """One case, as it is sent to the ranks, which make their tensors from it.

    Attributes:
        operation: the operator's name in case files, such as ``AllGatherVOperation``.
        rank_size: ranks of the call, at least 1.
        threads: whether the ranks are threads of one process.
        expected: the expected end of the call: no error, or an error at a step.
        stops_at: the last step to run; empty: all of them.
        needs_ml_dtypes: whether the tensors need ml_dtypes.
        infers_outputs: whether the outputs are those of infer_shape, whatever they are.
    """

    operation: str
    rank_size: int
    threads = False
    expected = Expectation()
    stops_at = ""
    needs_ml_dtypes: bool
    infers_outputs = False

    @abstractmethod
    def rank_operation(self, rank: int) -> str:
        """The name of the operator that a rank runs; empty if it takes no part."""

    @property
    def _entry(self) -> Operator:
        return OPERATIONS[self.operation]

    @property
    def operator(self) -> str:
        """The operator's stem, such as ``all_gather_v``."""
        return self._entry.name

    @property
    def struct(self) -> str:
        """Name of the operator's parameter struct."""
        return _struct_name(self.operation)

    def rank_struct(self, rank: int) -> str:
        """The struct's name of the operator that a rank runs; empty if it takes no part."""
        return _struct_name(self.rank_operation(rank))

    @property
    def in_place(self) -> bool:
        """Whether the operator overwrites its first input and has no output."""
        return self._entry.in_place

    def shows_input(self, rank: int) -> bool:
        """Whether this rank's result is its first input."""
        if self._entry.role is None:
            return self.in_place
        role = OPERATIONS.get(self.rank_operation(rank))
        return role is None or role.name != "recv"

    @abstractmethod
    def param(self, rank: int) -> str:
        """A rank's parameter struct as JSON."""

    @abstractmethod
    def inputs(self, rank: int) -> list[Argument]:
        """A rank's input tensors."""

    @abstractmethod
    def outputs(self, rank: int) -> list[Argument]:
        """Descriptions of a rank's output tensors, without arrays."""

    @abstractmethod
    def truth(self) -> Truth:
        """The expected results."""


def _struct_name(operation: str) -> str:
    return f"{operation.removesuffix('Operation')}Param" if operation else ""


class CaseCall(Call):
    """A case, the names of its inputs and the file of its tensors."""

    def __init__(self, case: Case, input_names: tuple[str, ...], path: Path) -> None:
        self.case, self.input_names, self.path = case, input_names, path
        self.operation = OPERATORS[case.operator].operation
        self.rank_size = case.rank_size
        self.needs_ml_dtypes = "bfloat16" in (case.dtype, case.output_dtype)

    def rank_operation(self, rank: int) -> str:
        operator = struct_operator(self.case, rank)
        return OPERATORS[operator].operation if operator else ""

    @property
    def outside_atb(self) -> str:
        """Why ATB's structs cannot express the case; empty if they can."""
        op = self.case.op
        operator = self._entry
        if operator.must_receive and 0 in self.case.rows:
            return f"a rank of {self.operator} that receives nothing is refused"
        has_it = not op or op in operator.reductions
        return "" if has_it else f"{self.operator} has no {op} in ATB"

    @cached_property
    def _entries(self) -> dict[str, Array]:
        return read_entries(self.path)

    def __getstate__(self) -> dict[str, Any]:
        # The tensors are not sent: every rank reads the file itself.
        return {key: value for key, value in self.__dict__.items() if key != "_entries"}

    def param(self, rank: int) -> str:
        fields: dict[str, Any] = {"rank": rank, "rankSize": self.rank_size, "backend": "shm"}
        fields["rankRoot"] = self.case.root
        fields |= struct_fields(self.case, rank)
        return json.dumps(fields)

    def inputs(self, rank: int) -> list[Argument]:
        names = [f"rank{rank}/{name}" for name in self.input_names]
        missing = [name for name in names if name not in self._entries]
        if missing:
            raise ValueError(f"{self.path}: has no {', '.join(missing)}")
        arrays = [self._entries[name] for name in names]
        return [Argument(name_of(array), array.shape, array=array) for array in arrays]

    def outputs(self, rank: int) -> list[Argument]:
        """A rank's outputs, of the shapes that golden expects."""
        if self.shows_input(rank):
            return []
        return [Argument(name_of(array), array.shape) for array in self._expected(rank)]

    def truth(self) -> Truth:
        """The expected results, read from the file."""
        ranks = range(self.rank_size)
        per_rank = [self._expected(rank) for rank in ranks]
        inputs = [[self._entries[f"rank{r}/{name}"] for name in self.input_names] for r in ranks]
        return Truth(
            outputs=list(zip(*per_rank, strict=True)),
            dtype=self.case.output_dtype,
            layout=case_layout(self.case, inputs),
            bounds=case_bounds(self.case, inputs),
            reduce=self.case.op or "sum",
            terms=self.case.x_shapes[0][-1] if self.case.linear is not None else 1,
        )

    def _expected(self, rank: int) -> list[Array]:
        names = [f"rank{rank}/output", *(f"rank{rank}/output{i}" for i in range(1, 9))]
        return [self._entries[name] for name in names if name in self._entries]


def case_calls(path: Path) -> list[CaseCall]:
    """The cases of a manifest.json, or the case of a .npz that lies beside its manifest.

    Raises:
        OSError: the file, or the manifest of a .npz, cannot be read.
        ValueError: the file is no manifest, or the manifest does not name the .npz.
    """
    manifest = path if path.suffix == ".json" else path.parent / MANIFEST
    if path != manifest and not manifest.exists():
        raise ValueError(f"{path}: has no {MANIFEST} beside it, which says what the case is")
    cases = read_manifest(manifest)
    calls = [CaseCall(*case) for case in cases if path == manifest or case[2] == path]
    if not calls:
        lack = "has no cases" if path == manifest else f"does not name {path.name}"
        raise ValueError(f"{manifest}: {lack}")
    return calls


# If a call must fail, a tensor of more bytes than these is passed as a description.
MOST_BYTES = 1 << 30
_REDUCTIONS = ("reduceType", "allReduceType")
_THREADS = 1


class RowCall(Call):
    """A row, with the options of the command line for its data.

    `instead` replaces the expected end if collops differs from ATB by intent.
    """

    def __init__(
        self,
        row: CsvRow,
        seed: int = 0,
        same_data: bool = False,
        instead: Expectation | None = None,
    ) -> None:
        self.row, self.seed, self.same_data = row, seed, same_data
        self.operation = row.operator
        # Creation must refuse other numbers of ranks; one rank is enough for that.
        self.rank_size = row.rank_size if 1 <= row.rank_size <= MOST_RANKS else 1
        self.threads = row.params.get("commMode") == _THREADS
        self.expected = instead or row.expected
        # A row whose creation must fail has no tensors.
        self.stops_at = "create" if row.expected.stage == "create" else self.expected.stage
        self.infers_outputs = row.infers_outputs
        dtypes = {tensor.dtype for tensor in (*row.inputs, *row.outputs)}
        has_bfloat16 = row.params.get("outDataType") == dtype_number("bfloat16")
        self.needs_ml_dtypes = has_bfloat16 or "bfloat16" in dtypes

    def rank_operation(self, rank: int) -> str:
        return rank_operator(self.row, rank)

    def param(self, rank: int) -> str:
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
            dtype=name_of(per_rank[0][0]) if per_rank[0] else row.inputs[0].dtype,
            layout=row_layout(row, inputs),
            bounds=row_bounds(row, inputs),
            reduce=str(next(reductions, "sum")),
            terms=inputs[0][0].shape[-1] if inputs[0][0].ndim else 1,
        )


def _described(tensor: RowTensor) -> Argument:
    return Argument(tensor.dtype, tensor.shape, tensor.format)
