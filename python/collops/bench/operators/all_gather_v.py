"""AllGatherV beside windows, an exchange, MPI, gloo, and programs that load the link."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import collops
from collops.bench.blocks import points, report
from collops.bench.blocks.variants import BlockVariants, Counts, starts, tensor_of, whole
from collops.bench.elements import Bits
from collops.bench.operator import Operator
from collops.bench.peers import LINK_PEERS
from collops.bench.variant import Step

_NAME = "AllGatherV"


class GatherVariants(BlockVariants):
    """Every rank gets the blocks of all."""

    name = _NAME
    param = collops.AllGatherVParam

    def x_rows(self, rank: int) -> int:
        """Elements of a rank's block."""
        return self.point.counts[rank]

    def result_rows(self) -> int:
        """Elements of all blocks."""
        return sum(self.point.counts)

    def counts_of(self, rank: int) -> list[Counts]:
        """What a rank sends, then what comes from each rank, and where it goes."""
        counts = whole(self)
        return [counts[rank : rank + 1], counts, starts(self)]

    def gloo_calls(self) -> Iterator[tuple[str, str, Any]]:
        """all_gather of blocks that are padded to one length, and what moves blocks as they are."""
        handle = self.peers.gloo.group([self.group.ranks], self.group)
        yield "gloo_all_gather", "gloo all_gather, padded", partial(self._padded, handle)
        for way in self.peers.gloo.WAYS:
            yield f"gloo_{way}", f"gloo {way}", partial(self._moved, way, handle)

    def _padded(self, handle: Any, x: Bits, result: Bits) -> list[Step]:
        given, got = tensor_of(self, x), tensor_of(self, result)
        return list(self.peers.gloo.all_gather(given, got, self.point.counts, handle))

    def _moved(self, way: str, handle: Any, x: Bits, result: Bits) -> list[Step]:
        given, got = self.element.tensor(x), self.element.tensor(result)
        return [("move", self.peers.gloo.gather(way, given, got, self.group, handle))]

    def mpi_calls(self) -> Iterator[tuple[str, str, Any]]:
        """MPI_Allgatherv."""
        members = self.peers.mpi.Members(0, self.group)
        yield "mpi", "MPI Allgatherv", lambda x, result: [("move", members.gather(x, result))]


OPERATOR = Operator(
    name="all_gather_v",
    description="Times AllGatherV of even and uneven blocks, on one host or several, beside MPI, "
    "gloo, a plain exchange, and programs that load the link.",
    epilog="Without arguments: 2 ranks on this host, float32, 1 KiB to 4 MiB per rank, even blocks "
    "and\nblocks shared out 3:5.",
    quick="1 KiB and 64 KiB per rank",
    add_options=points.add_options,
    points=points.make_points,
    variants=GatherVariants,
    own=(report.OWN,),
    reference=report.OWN,
    torch_peers=("gloo",),
    torch_columns="gloo",
    compare=report.compare,
    title=report.title_of(_NAME),
    headline=report.headline,
    ratios=report.RATIOS,
    summary=report.summary,
    parts={"pad": "pad", "move": "move", "copy": "copy"},
    unplotted=(report.LATENCY,),
    peers=("mpi", "gloo", *LINK_PEERS),
    dtypes=("f32",),
    several_hosts=True,
)
