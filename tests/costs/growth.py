"""Laws of growth: how much a cost of a rank may grow with the ranks of its host and other hosts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Place:
    """So many hosts, each with so many ranks."""

    hosts: int
    per_host: int

    def __str__(self) -> str:
        return f"{self.hosts} x {self.per_host}"


@dataclass(frozen=True)
class Law:
    """A cost, and the most that each rank of the host and each other host adds to it.

    `noise` is what it may differ by on one place.
    """

    cost: str
    rank: float = 0.0
    host: float = 0.0
    noise: float = 0.0

    def limit(self, place: Place, first: Place, cost: float) -> float:
        """The most that the cost may be at a place, if it was `cost` at the first one."""
        ranks = place.per_host - first.per_host
        hosts = place.hosts - first.hosts
        return cost + self.noise + self.rank * ranks + self.host * hosts

    def breaches(self, costs: Mapping[Place, float]) -> list[str]:
        """Where the cost has grown faster, in words."""
        first = next(iter(costs))
        return [
            f"{self.cost}: {cost:g} at {place}, at most {limit:g} after {costs[first]:g} at {first}"
            f" ({self.growth()})"
            for place, cost in costs.items()
            if cost > (limit := self.limit(place, first, costs[first]))
        ]

    def growth(self) -> str:
        """What the cost grows with, and how fast."""
        grows = [
            f"{slope:g} per {what}"
            for slope, what in ((self.rank, "rank of its host"), (self.host, "other host"))
            if slope > 0
        ]
        return ", ".join(grows) or "nothing"


def worst(costs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Of every cost the largest of any rank; of times the median, which load disturbs less."""
    return {
        name: statistics.median(values) if name.endswith("_ms") else max(values)
        for name in costs[0]
        for values in [[float(one[name]) for one in costs]]
    }


def table(laws: Sequence[Law], costs: Mapping[Place, Mapping[str, float]]) -> str:
    """The costs at every place, and what each may grow with; times of the clock have no law."""
    growth = {law.cost: law.growth() for law in laws}
    rows = [["cost", *map(str, costs), "grows at most by"]]
    for cost in next(iter(costs.values())):
        values = [f"{at[cost]:.4g}" for at in costs.values()]
        rows.append([cost, *values, growth.get(cost, "")])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def breaches(laws: Sequence[Law], costs: Mapping[Place, Mapping[str, float]]) -> list[str]:
    """Every cost that has grown faster than its law says."""
    return [
        breach
        for law in laws
        for breach in law.breaches({place: at[law.cost] for place, at in costs.items()})
    ]
