"""Reference of Send and Recv: one message, from one rank to another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data.dtypes import Array


def send_recv(xs: Sequence[Array], source: int, destination: int) -> list[Array]:
    """Return what each rank's tensor holds after a Send of `source` and a Recv of `destination`.

    `output_destination.flat = x_source.flat`; every other tensor is as it was

    Send has one input, x, any shape of 1 to 8 dims, and no output. Recv has one input, x, of which
    only shape and dtype are read, and one output of that shape and dtype, which may be x itself.
    Both sides must have the same dtype and the same number of elements; their shapes may differ.
    The other ranks take no part. dtypes: all of DTYPES. d0 may be 0: an empty message is matched
    as any other.

    Errors of the operators, in the order of their checks:

    - creation: rsv, backend (as AllGatherV: not lccl, lcoc, mc2), rankSize, commMode, commDomain,
      rankTableFile, rank, rankRoot; then destRank (of Recv srcRank) not in [0, rankSize), or this
      rank itself: 1. The default is 1, so rank 1 has to say another
    - infer_shape, get_workspace_size: as all operators: number of inputs 5, dims 8, sizes 9, dtype
      and format 13; number of outputs 5 (Send: any; Recv: not 1), dims 16, shape 8, dtype and
      format 13; device, layout, read-only output, an output over a part of x: 14
    - execute, at the match: the two sides have other dtypes or lengths: 102 on both, and the
      communicator ends for all; the peer has refused its side: 102 on this one alone, and the
      communicator stays good; the peer never comes: 100; the peer has ended: 101

    Args:
        xs: the tensor of every rank; of the receiver only the shape matters.
        source: the rank that sends.
        destination: the rank that receives.

    Returns:
        One fresh array per rank, each of its own x's shape.

    Raises:
        ValueError: no rank is called so, one rank is both, or dtypes or lengths differ.

    Example:
        >>> xs = [np.array([[1, 2], [3, 4]]), np.zeros(4, int), np.array([7])]
        >>> [x.tolist() for x in send_recv(xs, 0, 1)]
        [[[1, 2], [3, 4]], [1, 2, 3, 4], [7]]
    """
    for name, rank in (("source", source), ("destination", destination)):
        if not 0 <= rank < len(xs):
            raise ValueError(f"send_recv: {name} must be in [0, {len(xs)}), got {rank}")
    if source == destination:
        raise ValueError(f"send_recv: rank {source} cannot send to itself")
    sent, held = xs[source], xs[destination]
    if sent.dtype != held.dtype or sent.size != held.size:
        raise ValueError(
            f"send_recv: rank {source} sends {sent.size} elements of {sent.dtype}, "
            f"rank {destination} receives {held.size} of {held.dtype}"
        )
    outputs = [np.array(x) for x in xs]
    outputs[destination] = sent.reshape(held.shape).copy()
    return outputs
