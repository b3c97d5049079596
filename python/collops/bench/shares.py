"""How a vector or rows are shared out among ranks, and the words for it; sizes with units."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collops.terminal.arguments import count, counts

EVEN, ONE_OWNER, ZEROS = "even", "one-owner", "zeros"
WORDS = f"{EVEN}, {ONE_OWNER}, {ZEROS} or shares such as 3:5"
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


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

    def vectors(self, columns: int, result_rows: int) -> tuple[Any, Any, Any, Any]:
        """Inputs of the V operators: counts, where they begin, this rank's count, and y."""
        counts = np.array(self.counts(columns), np.int64)
        starts = np.array(self.displs(columns), np.int64)
        own = counts[self.index : self.index + 1]
        return counts, starts, own, np.empty(result_rows, np.float16)


def share_rows(rows: int, members: int, shares: Sequence[int]) -> tuple[int, ...]:
    """Rows of each member by its share, rounded down; the last member has the rest.

    Example:
        >>> share_rows(10, 2, [3, 5])
        (3, 7)
    """
    weights = [shares[i % len(shares)] for i in range(members)]
    parts = [rows * weight // sum(weights) for weight in weights[:-1]]
    return (*parts, rows - sum(parts))


def skew(text: str) -> str:
    """The word itself, if it is one of WORDS."""
    if text in (EVEN, ONE_OWNER, ZEROS):
        return text
    if ":" not in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {WORDS}")
    return ":".join(map(str, counts(text, ":", least=2)))


def skews(text: str) -> tuple[str, ...]:
    """The words of a list, each once."""
    return tuple(dict.fromkeys(map(skew, text.split(","))))


def share(elements: int, ranks: int, word: str) -> tuple[int, ...]:
    """The elements of each rank.

    - even: all ranks have equally many; the last rank also has the rest.
    - 3:5: by these shares, repeated as needed; the last rank has the rest.
    - one-owner: rank 0 has all of them.
    - zeros: ranks 0, 2, 4 ... have none, the others have equally many.

    Example:
        >>> share(10, 3, "zeros")
        (0, 10, 0)
    """
    if word == ONE_OWNER:
        return (elements, *[0] * (ranks - 1))
    if word == ZEROS:
        owners = iter(share_rows(elements, ranks // 2, (1,)))
        return tuple(next(owners) if rank % 2 else 0 for rank in range(ranks))
    weights = (1,) if word == EVEN else tuple(map(int, word.split(":")))
    return share_rows(elements, ranks, weights)


def size_text(size: int) -> str:
    """A number of bytes in the largest unit that divides it, such as "64k"."""
    for name, unit in reversed(_UNITS.items()):
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


def size_of(text: str) -> int:
    """A number of bytes, with k, m or g for a power of 1024."""
    unit = _UNITS.get(text[-1:].lower(), 1)
    try:
        return count(text[:-1] if unit > 1 else text) * unit
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"a number of bytes of 1 or more, with or without k, m or g, is needed, got {text!r}"
        ) from None


def sizes_of(text: str) -> tuple[int, ...]:
    """The numbers of bytes of a list."""
    return tuple(size_of(part.strip()) for part in text.split(","))
