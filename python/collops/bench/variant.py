"""One way to do the same work, and what is measured of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collops.bench.elements import Bits

# A part's name (gather, gemm, scatter, reduce or all) and what it runs.
Step = tuple[str, Callable[[], object]]


@dataclass
class Column:
    """A row of the tables: how it is called, what it runs, and where its tensors are."""

    key: str
    label: str
    steps: list[Step]
    x: Bits | None = None  # rewritten before each call
    result: Bits | None = None  # compared with that of the fused call, if it is the same thing
    scratch_bytes: int = 0  # that the caller hands in, as get_workspace_size() says
    operations: int = 0  # multiplications and additions, if not those of the product

    def run(self) -> None:
        """One call."""
        for _, step in self.steps:
            step()
