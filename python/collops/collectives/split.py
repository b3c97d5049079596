"""split of the plain level: makes a communicator of each subgroup of the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collops.collectives.plans import bad_argument, whole_number

if TYPE_CHECKING:
    from collops.collectives.level import PlainLevel

_INT_MAX = 2**31 - 1


def split(level: PlainLevel, color: int | None, key: int) -> Any:
    """Makes a communicator of the ranks that gave the same color; every rank calls it.

    ``part = the ranks with my color, numbered by key and then by their rank here``

    The new communicators are independent of this one and of each other, and can be split again.
    Closing one leaves the others open. Structs take its `handle` as `hccl_comm`.

    Args:
        color: the subgroup that this rank joins, at least 0; None or a negative number: none.
        key: order within the subgroup; equal keys keep the order of ranks.

    Returns:
        The communicator of this rank's subgroup, after first contact; None if it joins none.

    Raises:
        ArgumentError: color or key is not a whole number; the other ranks get its message.
        RankMismatchError: another rank refused, or made another call.
        RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

    Source of the semantics: MPI_Comm_split.

    Example:
        >>> import collops, numpy as np
        >>> from collops.testing import run_ranks
        >>> def work(rank):
        ...     with collops.init() as comm, comm.split(color=rank % 2) as part:
        ...         return part.rank, part.all_gatherv(np.array([rank])).tolist()
        >>> run_ranks(work, 3)
        [(0, [0, 2]), (0, [1]), (1, [0, 2])]
    """
    try:
        color = -1 if color is None else max(whole_number("split", "color", color), -1)
        key = whole_number("split", "key", key)
        if color > _INT_MAX:
            bad_argument(f"split: color must be from 0 to {_INT_MAX}, got {color}")
        if abs(key) > _INT_MAX:
            bad_argument(f"split: key must be from {-_INT_MAX} to {_INT_MAX}, got {key}")
    except Exception as error:
        level.refuse("Split", error)
        raise
    return level.core.split(color, key)
