"""What a case is to the ranks that run it, and to the process that judges what they made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from collops.golden.operators.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.golden.case_files.csv_row import Expectation
    from collops.golden.data.bounds import Bound
    from collops.golden.data.dtypes import Array


@dataclass(frozen=True)
class Argument:
    """A tensor of a call: golden's array, or None where only a description can be given.

    `own_rows`: dim 0 is each rank's own, and only infer_shape knows it. `only_described`: it gets
    no memory even if it could.
    """

    dtype: str
    shape: tuple[int, ...]
    format: str = "nd"
    array: Array | None = field(default=None, compare=False)
    own_rows: bool = False
    only_described: bool = False


@dataclass(frozen=True)
class Truth:
    """What every rank must get: per output, one array of each rank.

    `bounds` are the largest errors of the first output, None where it is exact; `reduce` is what
    the operator reduces with, `terms` the products in an element, both for ATB's tolerances.
    """

    outputs: Sequence[Sequence[Array]]
    dtype: str
    layout: Layout = field(default_factory=Layout)
    bounds: Sequence[Bound] | None = None
    reduce: str = "sum"
    terms: int = 1


class Call(Protocol):
    """One case. It is sent to the ranks, which make their own tensors from it."""

    @property
    def operator(self) -> str:
        """The operator's stem, such as ``all_gather_v``."""

    @property
    def struct(self) -> str:
        """Name of the operator's parameter struct."""

    def rank_struct(self, rank: int) -> str:
        """The struct of the operator that a rank runs; empty where it takes no part."""

    @property
    def rank_size(self) -> int:
        """Ranks of the call, at least 1."""

    @property
    def threads(self) -> bool:
        """Whether the ranks are threads of one process."""

    @property
    def in_place(self) -> bool:
        """Whether the first input is what comes out."""

    @property
    def expected(self) -> Expectation:
        """How the call must end."""

    @property
    def stops_at(self) -> str:
        """The last step to run; empty: all of them."""

    @property
    def needs_ml_dtypes(self) -> bool:
        """Whether numpy alone cannot hold the tensors."""

    def shows_input(self, rank: int) -> bool:
        """Whether what a rank must hold afterwards is its first input."""

    def param(self, rank: int) -> str:
        """A rank's parameter struct as JSON."""

    def inputs(self, rank: int) -> list[Argument]:
        """A rank's input tensors."""

    def outputs(self, rank: int) -> list[Argument]:
        """What a rank's output tensors are; they have no arrays."""

    def truth(self) -> Truth:
        """What must come out."""
