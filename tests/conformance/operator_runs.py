"""The conformance table's entry of one operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import collops
from tests.conformance import once
from tests.conformance.runs import Run

# Per rank, its outputs; None where the rank has none.
Outputs = Sequence[Sequence[Any] | None]


def golden_outputs(case: Any, run: Run) -> Outputs:
    """Golden's expected results of its own cases."""
    return once.all_outputs(case)


def golden_bounds(case: Any, run: Run) -> Any:
    """How far golden says that random sums of products may be off."""
    return once.bounds(case)


@dataclass(frozen=True)
class OperatorRuns:
    """How an operator's cases are called and judged.

    - `cases` are those that a run can state; each has an `id` and a `dtype`;
    - `call` makes the call on this rank and returns its outputs, or None where it has none; what
      is special (x unchanged, two forms of one call give the same) it asserts itself;
    - `wanted` is what every rank must get, `bounds` how far the first output may be off per rank
      (None: not at all);
    - with `moves`, not even the bits of a NaN may change;
    - `without` are the backends that have no runs, each with the reason; one that begins with
      "refused: " goes on with words of the error with which the backend refuses the call.
    """

    cases: Callable[[Run], Sequence[Any]]
    call: Callable[[collops.Communicator, Any, Run], Sequence[Any] | None]
    runs: Sequence[Run]
    wanted: Callable[[Any, Run], Outputs] = golden_outputs
    bounds: Callable[[Any, Run], Any] = lambda case, run: None
    moves: bool = True
    without: Mapping[str, str] = field(default_factory=dict)
