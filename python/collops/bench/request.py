"""What a run of a benchmark measures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Point(ABC):
    """One thing to measure; an operator's own class says with what."""

    dtype: str

    @property
    @abstractmethod
    def ranks(self) -> int:
        """How many ranks it takes."""

    @property
    @abstractmethod
    def title(self) -> str:
        """How notes call it."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What every row says of it."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What one launch of ranks does: all points of one number of ranks, with one MPI or none."""

    operator: str
    points: tuple[Point, ...]
    iterations: int
    threads: int
    own: tuple[str, ...]
    peers: tuple[str, ...]
    mpi: str = ""  # the name of the MPI that started the ranks
    seed: int = 1
