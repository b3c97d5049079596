"""The algorithms of a collective: what the ranks do, and the sizes that force one of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collops.bench.collectives.points import size_text
from collops.bench.operator import Row


@dataclass(frozen=True)
class Algorithm:
    """One way in which a backend makes a collective.

    Attributes:
        name: its name in tables and in JSON.
        how: what the ranks do.
        tuning: sizes of COLLOPS_TUNING with which every call takes this way; empty: there is no
            other way.
    """

    name: str
    how: str
    tuning: str = ""

    def key(self, buffer: str) -> str:
        """The key and label of the variant that is forced to take this way."""
        return f"{self.name} {buffer}"


@dataclass(frozen=True)
class Algorithms:
    """Those of a collective on one host, whatever the backend's name, and on several."""

    shm: tuple[Algorithm, ...]
    ucx: tuple[Algorithm, ...]


def described(algorithms: Sequence[Algorithm]) -> str:
    """How many there are, and what the ranks do in each."""
    number = "one algorithm," if len(algorithms) == 1 else f"{len(algorithms)} algorithms."
    ways = "; ".join(f"{each.name}: {each.how}" for each in algorithms)
    return f"{number} {ways}."


def chosen(rows: Sequence[Row]) -> str:
    """Which algorithm the library took at each size."""
    sizes: dict[str, set[int]] = {}
    for row in rows:
        sizes.setdefault(row["algorithm"], set()).add(row["bytes"])
    ways = "; ".join(
        f"{name} at {', '.join(map(size_text, sorted(found)))}" for name, found in sizes.items()
    )
    return f"The library chose {ways}."
