"""A group of ranks that exchange rows, and the number of rows of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """Ranks in the order of the group, and the rows of each."""

    ranks: tuple[int, ...]
    index: int
    rows: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of ranks."""
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


def share_rows(rows: int, members: int, shares: Sequence[int]) -> tuple[int, ...]:
    """Rows of each member by its share, rounded down; the last member has the rest.

    Example:
        >>> share_rows(10, 2, [3, 5])
        (3, 7)
    """
    weights = [shares[i % len(shares)] for i in range(members)]
    parts = [rows * weight // sum(weights) for weight in weights[:-1]]
    return (*parts, rows - sum(parts))
