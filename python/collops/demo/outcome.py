"""The results of a run on every rank, where they differ from golden, and a table of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collops.golden.data.dtypes import differs, name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

HEAD = ("operator", "ranks", "shapes", "equal to golden", "time (us)")
ALIGN = "<><<>"  # per column, as in a format specification


@dataclass
class Outcome:
    """One row of the table."""

    operator: str
    shapes: str
    results: list[npt.NDArray[Any]]
    expected: list[npt.NDArray[Any]]
    seconds: float
    bounds: list[npt.NDArray[np.float64]] | None = None  # None: equal means bit for bit

    def wrong(self, rank: int) -> npt.NDArray[np.bool_]:
        """Where the result of a rank differs from golden."""
        got, expected = self.results[rank], self.expected[rank]
        if got.shape != expected.shape:
            return np.ones(got.shape, np.bool_)
        if self.bounds is None:
            return differs(got, expected, name_of(expected))
        return np.asarray(~(np.abs(got - expected) <= self.bounds[rank]))  # a NaN is wrong, too

    def findings(self) -> list[str]:
        """A line per rank whose result differs: the first place, and the number of places."""
        found = (self._finding(rank) for rank in range(len(self.results)))
        return [f"{self.operator}, rank {rank}, {text}" for rank, text in enumerate(found) if text]

    def _finding(self, rank: int) -> str:
        got, expected, wrong = self.results[rank], self.expected[rank], self.wrong(rank)
        if got.shape != expected.shape:
            return f"shape: got {list(got.shape)}, expected {list(expected.shape)}"
        if not wrong.any():
            return ""
        index = tuple(np.argwhere(wrong)[0].tolist())
        others = int(wrong.sum()) - 1
        more = f", and {others} more" if others else ""
        return f"index {list(index)}: got {got[index]}, expected {expected[index]}{more}"

    def verdict(self) -> str:
        """The result of the comparison in a few words."""
        if self.findings():
            return "NO"
        return "yes, every bit" if self.bounds is None else "yes, in bound"


def table(outcomes: Sequence[Outcome]) -> str:
    """A table with aligned columns, a row per outcome, and the differences under each row."""
    cells = [
        (o.operator, str(len(o.results)), o.shapes, o.verdict(), f"{o.seconds * 1e6:,.0f}")
        for o in outcomes
    ]
    widths = [max(map(len, column)) for column in zip(HEAD, *cells, strict=True)]
    lines = [_line(HEAD, widths), "  ".join("-" * width for width in widths)]
    for outcome, row in zip(outcomes, cells, strict=True):
        lines.append(_line(row, widths))
        lines += [f"  {finding}" for finding in outcome.findings()]
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    parts = [
        f"{cell:{align}{width}}" for cell, align, width in zip(cells, ALIGN, widths, strict=True)
    ]
    return "  ".join(parts).rstrip()
