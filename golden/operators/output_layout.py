"""The places of each rank's elements in the outputs of a call, and the arrays reduced into them.

With it a difference can be named: block 2 in block 0's place, rank 3 left out of a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..data.dtypes import Array
from ..data.shares import packed


@dataclass(frozen=True)
class Block:
    """Elements [start, start + count) of an output, flat, that came from or belong to a rank.

    Example:
        >>> Block(24, 40, rank=1).stop
        64
    """

    start: int
    count: int
    rank: int

    @property
    def stop(self) -> int:
        """The element after the last one."""
        return self.start + self.count


@dataclass(frozen=True)
class Fault:
    """A known fault: its kind, a sentence, and what it makes of a call's outputs.

    Example:
        >>> Fault("wrong scale", "the scale is missing", lambda: []).outputs()
        []
    """

    kind: str
    text: str
    outputs: Callable[[], Sequence[Array]] = field(compare=False)


@dataclass(frozen=True)
class OutputLayout:
    """The blocks of ranks in the outputs of a call, one entry per output.

    `blocks` are the blocks of each output, empty if they are unknown. `parts` are, for a reduction
    `op`, the arrays that were reduced into the beginning of each output, one per rank. `faults` are
    those that can be computed from the call's inputs. With `has_tokens` the rows are those of
    tokens, of which an implementation may drop some.

    Example:
        >>> OutputLayout().blocks
        ()
    """

    blocks: tuple[tuple[Block, ...], ...] = ()
    op: str = ""
    parts: tuple[tuple[Array, ...], ...] = field(default=(), compare=False)
    faults: tuple[Fault, ...] = field(default=(), compare=False)
    has_tokens: bool = False

    def of(self, output: int) -> tuple[Block, ...]:
        """Return the blocks of one output, none if they are unknown."""
        return self.blocks[output] if output < len(self.blocks) else ()


def gather_layout(
    counts: Sequence[int], displs: Sequence[int] | None = None, *, outputs: int = 1
) -> OutputLayout:
    """Return the layout of a gather: rank r's block at displs[r] (None: packed), in every output.

    Example:
        >>> gather_layout([4, 2], outputs=2).blocks[1]
        (Block(start=0, count=4, rank=0), Block(start=4, count=2, rank=1))
    """
    displs = packed(counts) if displs is None else displs
    places = enumerate(zip(counts, displs, strict=True))
    blocks = tuple(Block(int(start), int(count), rank) for rank, (count, start) in places)
    return OutputLayout(blocks=(blocks,) * outputs)


def exchange_layout(
    recv_counts: Sequence[Sequence[int]], rdispls: Sequence[Sequence[int]]
) -> OutputLayout:
    """Return the layout of an all-to-all: in output r rank q's block is at rdispls[r][q].

    Example:
        >>> exchange_layout(((1, 2), (4, 3)), ((2, 0), (0, 4))).of(1)
        (Block(start=0, count=4, rank=0), Block(start=4, count=3, rank=1))
    """
    outputs = zip(recv_counts, rdispls, strict=True)
    return OutputLayout(blocks=tuple(gather_layout(*lists).of(0) for lists in outputs))


def message_layout(sizes: Sequence[int], source: int, destination: int) -> OutputLayout:
    """Return the layout of a message: the receiver holds the sender's elements, others their own.

    Example:
        >>> message_layout([3, 3, 3], 0, 1).blocks[1]
        (Block(start=0, count=3, rank=0),)
    """
    owners = [source if rank == destination else rank for rank in range(len(sizes))]
    blocks = ((Block(0, int(n), rank),) for n, rank in zip(sizes, owners, strict=True))
    return OutputLayout(blocks=tuple(blocks))


def scatter_layout(
    xs: Sequence[Array], counts: Sequence[int], displs: Sequence[int], op: str
) -> OutputLayout:
    """Return the layout of a reduce-scatter: output r is a reduction of its slice of every x.

    Example:
        >>> import numpy as np
        >>> layout = scatter_layout([np.arange(3), np.arange(3)], [2, 1], [0, 2], "sum")
        >>> layout.blocks[1], layout.parts[1][0].tolist()
        ((Block(start=0, count=1, rank=1),), [2])
    """
    flat = [x.reshape(-1) for x in xs]
    places = list(zip(counts, displs, strict=True))
    return OutputLayout(
        blocks=tuple((Block(0, int(count), rank),) for rank, count in enumerate(counts)),
        op=op,
        parts=tuple(tuple(x[start : start + n] for x in flat) for n, start in places),
    )
