"""Send and Recv: one message, from one rank to another.

Both operators take part in every case. The cases of send vary the ranks, the length and the data;
those of recv vary the shape of the receiver's tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from ..data.dtypes import DTYPES, Array
from .case import Case
from .case_lists import HUGE
from .operator import Inputs, Operator, Outputs, Params, each, rank_size_of, xs_of
from .output_layout import OutputLayout, message_layout

_Shape = tuple[int, ...]
_PEER_BY_DEFAULT = 1


def send_recv(xs: Sequence[Array], source: int, destination: int) -> list[Array]:
    """Return what each rank's tensor holds after a Send of `source` and a Recv of `destination`.

    `output_destination.flat = x_source.flat`; every other tensor is unchanged

    Send has one input, x, any shape of 1 to 8 dims, and no output. Recv has one input, x, of which
    only shape and dtype are read, and one output of that shape and dtype, which may be x itself.
    Both sides must have the same dtype and the same number of elements; their shapes may differ.
    The other ranks take no part. dtypes: all of DTYPES. d0 may be 0: an empty message is matched
    like any other.

    Errors of the operators, in the order of their checks:

    - creation: rsv, backend (as AllGatherV: not lccl, lcoc, mc2), rankSize, commMode, commDomain,
      rankTableFile, rank, rankRoot; then destRank (of Recv srcRank) not in [0, rankSize), or this
      rank itself: 1. The default is 1, so rank 1 must set another rank
    - infer_shape, get_workspace_size: as all operators: number of inputs 5, dims 8, sizes 9, dtype
      and format 13; number of outputs 5 (Send: any; Recv: not 1), dims 16, shape 8, dtype and
      format 13; device, layout, read-only output, an output over a part of x: 14
    - execute, at the match: the two sides have different dtypes or lengths: 102 on both, and the
      communicator ends for all; the peer has refused its side: 102 on this rank only, and the
      communicator stays usable; the peer makes no call: 100; the peer has ended: 101

    Args:
        xs: the tensor of every rank; of the receiver only the shape matters.
        source: the rank that sends.
        destination: the rank that receives.

    Returns:
        One new array per rank, each of its own x's shape.

    Raises:
        ValueError: a rank does not exist, both ranks are the same, or dtypes or lengths differ.

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


def _sent(size: int) -> Iterator[Case]:
    """Yield every dtype, kind of data, length and ordered pair of ranks; size is 2 or more."""
    pairs = list(permutations(range(size), 2))
    for number, dtype in enumerate(DTYPES):
        yield _case("send", f"dtype-{dtype}", size, pairs[number % len(pairs)], (3, 5), dtype)
    for pair in pairs:
        yield _case("send", f"pair-{pair[0]}-to-{pair[1]}", size, pair, (7,), "float32")
    for dtype in ("float16", "bfloat16", "float64"):
        name = f"data-special-{dtype}"
        yield _case("send", name, size, (0, size - 1), (37, 5), dtype, kind="special")
    for name, shape in (("no-rows", (0, 4)), ("one", (1,)), ("prime", (8191,)), ("huge", (HUGE,))):
        yield _case("send", f"length-{name}", size, (size - 1, 0), shape, "int64")


def _received(size: int) -> Iterator[Case]:
    """Yield every dtype and number of dims, also other ones than are sent; size is 2 or more."""
    pair = (size - 1, 0)
    for dtype in DTYPES:
        yield _case("recv", f"dtype-{dtype}", size, pair, (4, 3), dtype)
    for dims in range(1, 9):
        shape = (3, 2, 1, 2, 1, 2, 2, 1)[:dims]
        yield _case("recv", f"shape-{dims}d", size, pair, shape, "int16")
        flat = (math.prod(shape),)
        if dims > 1:
            yield _case("recv", f"shape-{dims}d-of-1d", size, pair, flat, "int8", held=shape)
    held = (10, 3)
    yield _case("recv", "shape-rows-of-columns", size, pair, (3, 10), "float16", held=held)
    yield _case("recv", "shape-no-rows", size, pair, (0, 4), "int32", held=(0,))
    yield _case("recv", "shape-huge", size, pair, (HUGE, 1), "bfloat16", held=(HUGE,))


def _case(
    operator: str,
    name: str,
    size: int,
    pair: tuple[int, int],
    shape: _Shape,
    dtype: str,
    *,
    kind: str = "index",
    held: _Shape | None = None,
) -> Case:
    """Return a message of `shape`; its receiver asks for the shape `held`, if that is another."""
    source, destination = pair
    held = shape if held is None else held
    shapes = [held if rank == destination else shape for rank in range(size)]
    return Case(
        operator=operator,
        name=name,
        rank_size=size,
        dtype=dtype,
        counts=tuple(math.prod(shape) if rank == source else 0 for rank in range(size)),
        displs=(0,) * size,
        x_shapes=tuple(shapes),
        rows=tuple(own[0] for own in shapes),
        kind=kind,
        root=source,
        peer=destination,
    )


def _acting_rank(params: Params) -> int:
    """Return the rank of OpParam; 0 if it is no valid rank."""
    given = params.get("rank", 0)
    return given if isinstance(given, int) and 0 <= given < rank_size_of(params) else 0


@dataclass(frozen=True)
class _Side:
    """Send or Recv.

    OpParam states the call of one rank, `rank`. Its peer, destRank or srcRank, makes the matching
    call; all other ranks take no part.
    """

    name: str
    peer: str
    other: str
    other_peer: str

    def message(self, params: Params) -> tuple[int, int]:
        """Return sender and receiver."""
        ends = _acting_rank(params), int(params.get(self.peer, _PEER_BY_DEFAULT))
        return ends if self.name == "send" else (ends[1], ends[0])

    def role(self, params: Params, rank: int, moves: bool) -> str:
        if rank == _acting_rank(params):
            return self.name
        return self.other if moves and rank in self.message(params) else ""

    def rank_params(self, params: Params, rank: int) -> dict[str, Any]:
        actor = _acting_rank(params)
        if rank == actor:
            return dict(params)
        common = {key: value for key, value in params.items() if key not in ("rank", self.peer)}
        return {**common, "rank": rank, self.other_peer: actor}

    def params(self, case: Case) -> dict[str, Any]:
        ends = (case.root, case.peer) if self.name == "send" else (case.peer, case.root)
        return {"rank": ends[0], self.peer: ends[1]}

    def outputs(self, params: Params, inputs: Inputs) -> Outputs:
        """Return the expected tensor of each rank: the receiver's output, else the rank's own x."""
        return each(send_recv(xs_of(inputs), *self.message(params)))

    def layout(self, params: Params, inputs: Inputs) -> OutputLayout:
        return message_layout([x.size for x in xs_of(inputs)], *self.message(params))

    def operator(self, cases: Callable[[int], Iterator[Case]]) -> Operator:
        return Operator(
            name=self.name,
            operation=f"{self.name.capitalize()}Operation",
            cases=cases,
            outputs=self.outputs,
            layout=self.layout,
            params=self.params,
            role=self.role,
            rank_params=self.rank_params,
        )


SEND = _Side("send", "destRank", "recv", "srcRank").operator(_sent)
RECV = _Side("recv", "srcRank", "send", "destRank").operator(_received)
