"""ReduceScatterV beside windows, an exchange, MPI, gloo, and programs that load the link."""

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

_NAME = "ReduceScatterV"


class ScatterVariants(BlockVariants):
    """Every rank gets the sum of its slices."""

    name = _NAME
    param = collops.ReduceScatterVParam

    def x_rows(self, rank: int) -> int:
        """Elements of all slices."""
        return sum(self.point.counts)

    def result_rows(self) -> int:
        """Elements of this rank's slice."""
        return self.group.own_rows

    def counts_of(self, rank: int) -> list[Counts]:
        """What goes to each rank, and where it lies, then what a rank receives."""
        counts = whole(self)
        return [counts, starts(self), counts[rank : rank + 1]]

    def gloo_calls(self) -> Iterator[tuple[str, str, Any]]:
        """reduce_scatter of even slices; all_reduce; and what moves slices, which torch adds up."""
        handle = self.peers.gloo.group([self.group.ranks], self.group)
        if self.point.spread == "even":
            label = "gloo reduce_scatter"
            yield "gloo_reduce_scatter", label, partial(self._native, handle)
        yield "gloo_all_reduce", "gloo all_reduce, own slice", partial(self._reduced, handle)
        for way in self.peers.gloo.WAYS:
            yield f"gloo_{way}", f"gloo {way}, torch.add", partial(self._added, way, handle)

    def _native(self, handle: Any, x: Bits, result: Bits) -> list[Step]:
        given, got = tensor_of(self, x), tensor_of(self, result)
        return [("move", self.peers.gloo.reduce_scatter(given, got, self.point.counts, handle))]

    def _reduced(self, handle: Any, x: Bits, result: Bits) -> list[Step]:
        given, got = tensor_of(self, x), tensor_of(self, result)
        return list(self.peers.gloo.all_reduce(given, got, self.group, handle))

    def _added(self, way: str, handle: Any, x: Bits, result: Bits) -> list[Step]:
        given, got = self.element.tensor(x), self.element.tensor(result)
        move, (first, *others) = self.peers.gloo.scatter(way, given, self.group, handle)
        return [("move", move), ("reduce", self.peers.torch.add(first, others, got))]

    def mpi_calls(self) -> Iterator[tuple[str, str, Any]]:
        """MPI_Reduce_scatter, which adds float32 only."""
        members = self.peers.mpi.Members(0, self.group)
        if self.point.dtype == "f32":
            label = "MPI Reduce_scatter"
            yield "mpi", label, lambda x, out: [("move", members.reduce_scatter(x, out))]


OPERATOR = Operator(
    name="reduce_scatter_v",
    description="Times ReduceScatterV of even and uneven slices, on one host or several, beside "
    "MPI, gloo, a plain exchange, and programs that load the link.",
    epilog="Without arguments: 2 ranks on this host, float32 and bfloat16, 1 KiB to 4 MiB per "
    "rank, even\nslices and slices shared out 3:5.",
    quick="1 KiB and 64 KiB per rank",
    add_options=points.add_options,
    points=points.make_points,
    variants=ScatterVariants,
    own=(report.OWN,),
    reference=report.OWN,
    torch_peers=("gloo",),
    torch_columns="gloo",
    compare=report.compare,
    title=report.title_of(_NAME),
    headline=report.headline,
    ratios=report.RATIOS,
    summary=report.summary,
    parts={"move": "move", "reduce": "reduce", "copy": "copy"},
    unplotted=(report.LATENCY,),
    peers=("mpi", "gloo", *LINK_PEERS),
    dtypes=("f32", "bf16"),
    several_hosts=True,
)
