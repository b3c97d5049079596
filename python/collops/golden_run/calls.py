"""Call, a case for the ranks that run it and the process that checks results."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from collops.golden.case_files.csv_row import Expectation
from collops.golden.operators.output_layout import OutputLayout
from collops.golden.operators.table import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """One case, as it is sent to the ranks, which make their tensors from it."""

    @property
    @abstractmethod
    def operation(self) -> str:
        """The operator's name in case files, such as ``AllGatherVOperation``."""

    @abstractmethod
    def rank_operation(self, rank: int) -> str:
        """The same of the operator that a rank runs; empty if it takes no part."""

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
    @abstractmethod
    def rank_size(self) -> int:
        """Ranks of the call, at least 1."""

    @property
    def threads(self) -> bool:
        """Whether the ranks are threads of one process."""
        return False

    @property
    def in_place(self) -> bool:
        """Whether the operator overwrites its first input and has no output."""
        return self._entry.in_place

    @property
    def expected(self) -> Expectation:
        """The expected end of the call: no error, or an error at a step."""
        return Expectation()

    @property
    def stops_at(self) -> str:
        """The last step to run; empty: all of them."""
        return ""

    @property
    @abstractmethod
    def needs_ml_dtypes(self) -> bool:
        """Whether the tensors need ml_dtypes."""

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
    return re.sub(r"Operation$", "Param", operation)
