"""The pass of inductor that fuses products with the collective calls around them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from collops.torch.async_tp.fused_products import (
    FusedPatterns,
    count,
    fuse_gathered_products,
    fuse_scattered_products,
    fuse_uneven_gathers,
    fuse_uneven_scatters,
)
from collops.torch.private import inductor_pass

CustomGraphPass: Any
CustomGraphPass, stable_topological_sort = inductor_pass()
_log = logging.getLogger(__name__)


class AsyncTensorParallel(CustomGraphPass):
    """Fuses the patterns of the enabled groups in every graph that inductor compiles.

    It runs the passes of others first: torch before 2.13 takes one pass alone.
    """

    def __init__(self, group_names: Collection[str], others: Sequence[Any]) -> None:
        self.group_names = group_names
        self.others = others

    def __call__(self, graph: Any) -> None:
        """Changes a graph in place."""
        for other in self.others:
            other(graph)
        names = self.group_names
        here = FusedPatterns(
            fuse_gathered_products(graph, names) + fuse_uneven_gathers(graph, names),
            fuse_scattered_products(graph, names) + fuse_uneven_scatters(graph, names),
        )
        if any(here):
            # A fused call stands before its first product; its weights may come later.
            stable_topological_sort(graph)
            graph.lint()
        count(here)
        _log.info(
            "fused %d all_gather + matmul and %d matmul + reduce_scatter of a graph of %d nodes",
            *here,
            len(graph.nodes),
        )

    def uuid(self) -> Any:
        """What the result depends on, for inductor's cache: this code, the groups, other passes.

        None, with which inductor keeps nothing: another pass is a function, or says the same.
        """
        others = [
            other.uuid() if isinstance(other, CustomGraphPass) else None for other in self.others
        ]
        if None in others:
            return None
        folder = Path(__file__).parent
        sources = tuple(path.read_bytes() for path in sorted(folder.glob("*.py")))
        return "collops.async_tp", sources, tuple(sorted(self.group_names)), tuple(others)
