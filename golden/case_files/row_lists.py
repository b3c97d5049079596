"""The lists of AllToAllV's struct in a case file: one for all ranks, or one per rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..data.exchange import Exchange, exchange
from .csv_row import CsvRow

COUNT_LISTS = ("sendCounts", "sdispls", "recvCounts", "rdispls")


def rank_list(row: CsvRow, name: str, rank: int) -> list[int]:
    """Return a rank's own list of AllToAllV's struct.

    A list of lists has one per rank, which ATB does not have: with the same numbers on every rank
    only equal counts fit together.

    Raises:
        ValueError: the row has no such list, or none for this rank.

    Example:
        >>> params = {"rankSize": 2, "sendCounts": [1, 2], "rdispls": [[0, 1], [3, 0]]}
        >>> row = CsvRow("a.csv:2", 1, "x", "AllToAllVOperation", params)
        >>> rank_list(row, "sendCounts", 1), rank_list(row, "rdispls", 1)
        ([1, 2], [3, 0])
    """
    given: Any = row.params.get(name)
    own = given[rank] if is_per_rank(given) and rank < len(given) else given
    if not isinstance(own, list) or is_per_rank(own):
        raise ValueError(f"{row.place}: OpParam has no list {name} for rank {rank}")
    return own


def is_per_rank(given: Any) -> bool:
    """Return whether a value of OpParam is a list of lists.

    Example:
        >>> is_per_rank([[1], [2]]), is_per_rank([1, 2]), is_per_rank([])
        (True, False, False)
    """
    return isinstance(given, list) and bool(given) and all(isinstance(p, list) for p in given)


def exchange_of_lists(lists: Mapping[str, Sequence[Sequence[int]]]) -> Exchange:
    """Return the exchange that the four lists of every rank state.

    Raises:
        ValueError: a rank receives another number than is sent to it.

    Example:
        >>> exchange_of_lists({"sendCounts": [[1, 2], [0, 1]], "sdispls": [[0, 1], [0, 0]],
        ...                    "recvCounts": [[1, 0], [2, 1]], "rdispls": [[0, 1], [0, 2]]}).lengths
        (1, 3)
    """
    sent, received = lists["sendCounts"], lists["recvCounts"]
    for q, counts in enumerate(sent):
        for r, count in enumerate(counts):
            if r >= len(received) or q >= len(received[r]) or received[r][q] != count:
                raise ValueError(
                    f"rank {q}'s sendCounts[{r}] is {count}, rank {r} has other recvCounts[{q}]"
                )
    return exchange(sent, sdispls=lists["sdispls"], rdispls=lists["rdispls"])
