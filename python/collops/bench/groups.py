"""Which ranks gather from each other and add up, and which rows each of them has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.bench.request import Point


@dataclass(frozen=True)
class Group:
    """Ranks in the order of their places, and the rows of each."""

    ranks: tuple[int, ...]
    index: int
    rows: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return len(self.ranks)

    @property
    def own_rows(self) -> int:
        """The rows of this rank."""
        return self.rows[self.index]

    def counts(self, columns: int) -> list[int]:
        """Elements of each member."""
        return [rows * columns for rows in self.rows]

    def displs(self, columns: int) -> list[int]:
        """Where each member's elements begin."""
        return [sum(self.rows[:i]) * columns for i in range(self.size)]


@dataclass(frozen=True)
class Groups:
    """The two groups of one rank; the ranks of a gather group are neighbours."""

    gather: Group
    scatter: Group

    @staticmethod
    def of(point: Point, rank: int) -> Groups:
        """The groups of a rank in a point's grid."""
        num_gather, num_scatter = point.grid
        row, column = divmod(rank, num_gather)
        gather = tuple(row * num_gather + i for i in range(num_gather))
        scatter = tuple(column + i * num_gather for i in range(num_scatter))
        m = point.shape[0]
        return Groups(
            Group(gather, column, share_rows(m, num_gather, point.shares)),
            Group(scatter, row, share_rows(m, num_scatter, point.shares)),
        )


def share_rows(rows: int, members: int, shares: Sequence[int]) -> tuple[int, ...]:
    """Rows of each member by its share, rounded down; the last one has what is left.

    Example:
        >>> share_rows(10, 2, [3, 5])
        (3, 7)
    """
    weights = [shares[i % len(shares)] for i in range(members)]
    parts = [rows * weight // sum(weights) for weight in weights[:-1]]
    return (*parts, rows - sum(parts))
