"""Rows of Send and Recv: who takes part, and as what.

A row says what one rank does, OpParam's `rank` (0 if it has none). The rank that it names, destRank
or srcRank, does the other side where the row has to work; all others take no part.
"""

from __future__ import annotations

from typing import Any

from .csv_row import CsvRow

_PEER = {"SendOperation": "destRank", "RecvOperation": "srcRank"}
_OTHER = {"SendOperation": "RecvOperation", "RecvOperation": "SendOperation"}
_PEER_BY_DEFAULT = 1


def message_of(row: CsvRow) -> tuple[int, int]:
    """Return sender and receiver of a row of Send or Recv.

    Raises:
        KeyError: it is a row of another operator.

    Example:
        >>> message_of(CsvRow("a.csv:2", 1, "x", "SendOperation", {"rankSize": 2}))
        (0, 1)
        >>> params = {"rank": 2, "rankSize": 3, "srcRank": 0}
        >>> message_of(CsvRow("a.csv:2", 1, "x", "RecvOperation", params))
        (0, 2)
    """
    actor, peer = acting_rank(row), int(row.params.get(_PEER[row.operator], _PEER_BY_DEFAULT))
    return (actor, peer) if row.operator == "SendOperation" else (peer, actor)


def acting_rank(row: CsvRow) -> int:
    """Return the rank that a row of Send or Recv is about; 0 where its own is none.

    Example:
        >>> params = {"rank": 7, "rankSize": 2}
        >>> acting_rank(CsvRow("a.csv:2", 1, "x", "SendOperation", params))
        0
    """
    given = row.params.get("rank", 0)
    return given if isinstance(given, int) and 0 <= given < row.rank_size else 0


def rank_operator(row: CsvRow, rank: int) -> str:
    """Return the operator that a rank runs of a row; empty where it takes no part.

    Of most rows that is the row's own, on every rank.

    Example:
        >>> row = CsvRow("a.csv:2", 1, "x", "SendOperation", {"rankSize": 3, "destRank": 2})
        >>> [rank_operator(row, rank) for rank in range(3)]
        ['SendOperation', '', 'RecvOperation']
    """
    if row.operator not in _PEER or rank == acting_rank(row):
        return row.operator
    moves = row.expected.stage in ("", "execute")
    return _OTHER[row.operator] if moves and rank in message_of(row) else ""


def message_params(row: CsvRow, rank: int) -> dict[str, Any]:
    """Return OpParam of Send or Recv for a rank: the peer gets the other side's.

    Example:
        >>> params = {"rank": 0, "rankSize": 3, "destRank": 2}
        >>> row = CsvRow("a.csv:2", 1, "x", "SendOperation", params)
        >>> message_params(row, 0) == params, message_params(row, 2)
        (True, {'rankSize': 3, 'rank': 2, 'srcRank': 0})
    """
    actor = acting_rank(row)
    if rank == actor:
        return dict(row.params)
    peer, other = _PEER[row.operator], _PEER[_OTHER[row.operator]]
    params = {key: value for key, value in row.params.items() if key not in ("rank", peer)}
    return {**params, "rank": rank, other: actor}
