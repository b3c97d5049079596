"""CaseCall: a case that ``golden generate`` has written, as a Call; it must work, on processes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collops.golden.case_files.manifest import MANIFEST, read_manifest
from collops.golden.case_files.tensor_files import read_entries
from collops.golden.cases import (
    OPERATORS,
    Case,
    case_bounds,
    case_layout,
    struct_fields,
    struct_operator,
)
from collops.golden.data.dtypes import name_of
from collops.golden_run.calls import Argument, Call, Truth

if TYPE_CHECKING:
    from collops.golden.data.dtypes import Array


@dataclass(frozen=True)
class CaseCall(Call):
    """A case, the names of its inputs and the file of its tensors."""

    case: Case
    input_names: tuple[str, ...]
    path: Path

    @property
    def operation(self) -> str:
        """The operator's name in case files, such as ``AllGatherVOperation``."""
        return OPERATORS[self.case.operator].operation

    def rank_operation(self, rank: int) -> str:
        """The same of the operator that a rank runs; empty if it takes no part."""
        operator = struct_operator(self.case, rank)
        return OPERATORS[operator].operation if operator else ""

    @property
    def rank_size(self) -> int:
        """Ranks of the call."""
        return self.case.rank_size

    @property
    def needs_ml_dtypes(self) -> bool:
        """Whether the tensors need ml_dtypes."""
        return self.case.dtype == "bfloat16"

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
        """A rank's parameter struct as JSON."""
        fields: dict[str, Any] = {"rank": rank, "rankSize": self.rank_size, "backend": "shm"}
        fields["rankRoot"] = self.case.root
        fields |= struct_fields(self.case, rank)
        return json.dumps(fields)

    def inputs(self, rank: int) -> list[Argument]:
        """A rank's input tensors."""
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
            dtype=self.case.dtype,
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
