"""Point and Request: what a benchmark measures in one launch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Point(ABC):
    """One point to measure; an operator's own class has its parameters."""

    dtype: str

    @property
    @abstractmethod
    def ranks(self) -> int:
        """The number of ranks."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The name of the point in notes."""

    @property
    def burst(self) -> int:
        """Calls of a variant in its turn of a round; with several, one before them does not count.

        What ran before has left a short call's code and memory out of the caches.
        """
        return 1

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The parameters of the point, for every row."""


@dataclass(frozen=True, kw_only=True)
class OnGpu:
    """Ranks that are threads of one process, on its GPUs.

    Attributes:
        backend: the backend that is measured.
        devices: the GPUs; rank r has that of r modulo their number.
        calls: calls between two events.
        graph: whether these calls are captured once, and replayed.
    """

    backend: str
    devices: tuple[int, ...]
    calls: int
    graph: bool


@dataclass(frozen=True, kw_only=True)
class Request:
    """The work of one launch: all points with the same number of ranks, with one MPI or none."""

    operator: str
    points: tuple[Point, ...]
    iterations: int
    threads: int
    own: tuple[str, ...]
    peers: tuple[str, ...]
    mpi: str = ""  # the name of the MPI that started the ranks
    seed: int = 1
    gpu: OnGpu | None = None  # None: the ranks compute on the host
