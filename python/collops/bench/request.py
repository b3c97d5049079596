"""What a run of the benchmark of LinearParallel measures, as text for the ranks."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

# In the order in which they are shown.
OWN = ("fused_window", "fused", "pipeline", "unfused", "gemm", "peak")
PEERS = ("mpi", "gloo", "torch", "numpy")


@dataclass(frozen=True, kw_only=True)
class Point:
    """One thing to measure: a type on a grid of ranks, for one element type and one product."""

    type: int
    grid: tuple[int, int]  # ranks that gather from each other, ranks that add up
    dtype: str
    shape: tuple[int, int, int]  # M, K, N of one rank's product, after gathering
    shares: tuple[int, ...]  # how rows are shared out in a group, repeated as needed

    @property
    def ranks(self) -> int:
        """How many ranks it takes."""
        return self.grid[0] * self.grid[1]

    @property
    def title(self) -> str:
        """How progress and tables call it."""
        shape = ",".join(map(str, self.shape))
        return f"type {self.type}, {self.grid[0]}x{self.grid[1]} ranks, {self.dtype}, {shape}"

    @staticmethod
    def from_fields(fields: dict[str, Any]) -> Point:
        """The point whose fields were JSON, which has lists for tuples."""
        lists = {name: tuple(fields[name]) for name in ("grid", "shape", "shares")}
        return Point(**{**fields, **lists})


@dataclass(frozen=True, kw_only=True)
class Request:
    """What one launch of ranks does: all points of one number of ranks, with one MPI or none."""

    points: tuple[Point, ...]
    iterations: int
    threads: int
    own: tuple[str, ...] = OWN
    peers: tuple[str, ...] = PEERS
    mpi: str = ""  # the name of the MPI that started the ranks
    seed: int = 1

    def to_json(self) -> str:
        """The text that from_json() reads."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> Request:
        """What to_json() wrote."""
        fields = json.loads(text)
        points = tuple(Point.from_fields(point) for point in fields.pop("points"))
        for key in ("own", "peers"):
            fields[key] = tuple(fields[key])
        return Request(points=points, **fields)
