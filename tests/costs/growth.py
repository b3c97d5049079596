"""Laws of growth: a cost of a rank grows with something, and no faster."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Place:
    """So many hosts, each with so many ranks."""

    hosts: int
    per_host: int

    def __str__(self) -> str:
        return f"{self.hosts} x {self.per_host}"


# What a cost may grow with, by its name in a table.
FACTORS: dict[str, Callable[[Place], float]] = {
    "nothing": lambda place: 1,
    "ranks of its host": lambda place: place.per_host,
    "other hosts": lambda place: place.hosts - 1,
    "hosts and ranks of its host": lambda place: place.hosts + place.per_host,
    "ranks": lambda place: place.hosts * place.per_host,
}


@dataclass(frozen=True)
class Law:
    """A cost, what it grows with, and how much is noise: an amount, and a factor."""

    cost: str
    grows_with: str
    noise: float
    factor: float = 1.5

    def limit(self, place: Place, first: Place, cost: float) -> float:
        """The most that the cost may be at a place, if it was `cost` at the first one."""
        factor = FACTORS[self.grows_with]
        return self.factor * cost * factor(place) / factor(first) + self.noise

    def breaches(self, costs: Mapping[Place, float]) -> list[str]:
        """Where the cost has grown faster, in words."""
        first = next(iter(costs))
        return [
            f"{self.cost}: {cost:g} at {place}, at most {limit:g}, as it grows with "
            f"{self.grows_with} from {costs[first]:g} at {first}"
            for place, cost in costs.items()
            if cost > (limit := self.limit(place, first, costs[first]))
        ]


def worst(costs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Of every cost the largest of any rank; of times the median, which load disturbs less."""
    return {
        name: statistics.median(values) if name.endswith("_ms") else max(values)
        for name in costs[0]
        for values in [[float(one[name]) for one in costs]]
    }


def table(laws: Sequence[Law], costs: Mapping[Place, Mapping[str, float]]) -> str:
    """The costs at every place, and what each grows with."""
    rows = [["cost", *map(str, costs), "grows with"]]
    for law in laws:
        values = [f"{at[law.cost]:.4g}" for at in costs.values()]
        rows.append([law.cost, *values, law.grows_with])
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
