"""How many patterns the pass of async tensor parallelism has fused in this process."""

from __future__ import annotations

from typing import NamedTuple


class FusedPatterns(NamedTuple):
    """The fused patterns of the graphs that were compiled since the last reset.

    Attributes:
        all_gather_matmul: all_gather with one or several products.
        matmul_reduce_scatter: a product with reduce_scatter.
    """

    all_gather_matmul: int = 0
    matmul_reduce_scatter: int = 0


_counts = [FusedPatterns()]


def count(found: FusedPatterns) -> None:
    """Adds what one graph had."""
    _counts[0] = FusedPatterns(*map(sum, zip(_counts[0], found, strict=True)))


def fused_patterns(*, reset: bool = False) -> FusedPatterns:
    """Returns how many patterns were fused in this process since the last reset.

    ``counts = sum over the graphs that were compiled``; graphs that inductor takes from its cache
    are fused, but not counted. The logger ``collops.torch.async_tp.graph_pass`` logs the counts of
    each graph at level INFO.

    Args:
        reset: whether to count from 0 afterwards.

    Returns:
        The counts of both patterns.

    Source of the semantics: collops.

    Example:
        >>> import collops.torch
        >>> collops.torch.fused_patterns(reset=True) is not None
        True
        >>> collops.torch.fused_patterns()
        FusedPatterns(all_gather_matmul=0, matmul_reduce_scatter=0)
    """
    counts = _counts[0]
    if reset:
        _counts[0] = FusedPatterns()
    return counts
