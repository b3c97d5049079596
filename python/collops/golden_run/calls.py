"""Call, the protocol of a case for the ranks that run it and the process that checks results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from collops.golden.operators.output_layout import OutputLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.golden.case_files.csv_row import Expectation
    from collops.golden.data.bounds import Bound
    from collops.golden.data.dtypes import Array


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


class Call(Protocol):
    """One case, as it is sent to the ranks, which make their tensors from it."""

    @property
    def operator(self) -> str:
        """The operator's stem, such as ``all_gather_v``."""

    @property
    def struct(self) -> str:
        """Name of the operator's parameter struct."""

    def rank_struct(self, rank: int) -> str:
        """The struct's name of the operator that a rank runs; empty if it takes no part."""

    @property
    def rank_size(self) -> int:
        """Ranks of the call, at least 1."""

    @property
    def threads(self) -> bool:
        """Whether the ranks are threads of one process."""

    @property
    def in_place(self) -> bool:
        """Whether the operator overwrites its first input and has no output."""

    @property
    def expected(self) -> Expectation:
        """The expected end of the call: no error, or an error at a step."""

    @property
    def stops_at(self) -> str:
        """The last step to run; empty: all of them."""

    @property
    def needs_ml_dtypes(self) -> bool:
        """Whether the tensors need ml_dtypes."""

    def shows_input(self, rank: int) -> bool:
        """Whether this rank's result is its first input."""

    def param(self, rank: int) -> str:
        """A rank's parameter struct as JSON."""

    def inputs(self, rank: int) -> list[Argument]:
        """A rank's input tensors."""

    def outputs(self, rank: int) -> list[Argument]:
        """Descriptions of a rank's output tensors, without arrays."""

    def truth(self) -> Truth:
        """The expected results."""
