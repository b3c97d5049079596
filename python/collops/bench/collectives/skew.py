"""How a vector is shared out among the ranks: the words of --skew."""

from __future__ import annotations

import argparse

from collops.bench.groups import share_rows
from collops.terminal.arguments import counts

EVEN, ONE_OWNER, ZEROS = "even", "one-owner", "zeros"
WORDS = f"{EVEN}, {ONE_OWNER}, {ZEROS} or shares such as 3:5"


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
