"""Exchange: the counts and displacements of an all-to-all, as tables with one line per rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .shares import packed

Table = tuple[tuple[int, ...], ...]
# The lists that one rank passes, by ATB's names of struct fields and inputs.
COUNT_LISTS = ("sendCounts", "sdispls", "recvCounts", "rdispls")


@dataclass(frozen=True)
class Exchange:
    """Counts and displacements of every rank, all in elements.

    `send_counts[q][r]` elements go from rank q to rank r; they begin at `sdispls[q][r]` in q's x
    and at `rdispls[r][q]` in r's output.

    Example:
        >>> call = exchange([[2, 1], [0, 3]])
        >>> call.recv_counts, call.lengths
        (((2, 0), (1, 3)), (2, 4))
        >>> call.lists(1)["rdispls"]
        [0, 1]
    """

    send_counts: Table
    sdispls: Table
    rdispls: Table

    @property
    def recv_counts(self) -> Table:
        """Elements that each rank receives from each: `recv_counts[r][q] = send_counts[q][r]`."""
        return turned(self.send_counts)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of elements of each rank's output, which are all that it receives."""
        return tuple(sum(counts) for counts in self.recv_counts)

    def lists(self, rank: int) -> dict[str, list[int]]:
        """Return the lists that one rank passes, by the names of COUNT_LISTS."""
        tables = (self.send_counts, self.sdispls, self.recv_counts, self.rdispls)
        return {name: list(table[rank]) for name, table in zip(COUNT_LISTS, tables, strict=True)}


def exchange(
    send_counts: Sequence[Sequence[int]],
    *,
    sdispls: Sequence[Sequence[int]] | None = None,
    rdispls: Sequence[Sequence[int]] | None = None,
) -> Exchange:
    """Return an exchange; displacements that are not given are packed, in rank order.

    Example:
        >>> exchange([[2, 1], [0, 3]]).sdispls
        ((0, 2), (0, 0))
    """
    received = turned(send_counts)
    return Exchange(
        send_counts=_frozen(send_counts),
        sdispls=_frozen(sdispls if sdispls is not None else map(packed, send_counts)),
        rdispls=_frozen(rdispls if rdispls is not None else map(packed, received)),
    )


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


def turned(table: Sequence[Sequence[int]]) -> Table:
    """Return a table with lines and columns exchanged.

    Example:
        >>> turned([[1, 2], [3, 4]])
        ((1, 3), (2, 4))
    """
    return _frozen(zip(*table, strict=True))


def square(flat: Sequence[int], rank_size: int) -> Table:
    """Return the table whose lines stand in `flat` one after the other.

    Raises:
        ValueError: there are not rank_size * rank_size numbers.

    Example:
        >>> square([1, 2, 3, 4], 2)
        ((1, 2), (3, 4))
    """
    if len(flat) != rank_size * rank_size:
        raise ValueError(
            f"a table of {rank_size} ranks has {rank_size**2} numbers, got {len(flat)}"
        )
    lines = range(0, len(flat), rank_size)
    return _frozen(flat[start : start + rank_size] for start in lines)


def flat(table: Table) -> tuple[int, ...]:
    """Return the lines of a table one after the other.

    Example:
        >>> flat(((1, 2), (3, 4)))
        (1, 2, 3, 4)
    """
    return tuple(number for line in table for number in line)


def _frozen(table: Iterable[Iterable[int]]) -> Table:
    return tuple(tuple(int(number) for number in line) for line in table)
