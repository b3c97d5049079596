"""Operator: what the bench asks of the module of an operator; and the request of a launch."""

from __future__ import annotations

import argparse
import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from collops.bench.elements import NAMES

# The figures of a variant and the parameters of its point, as --json writes them.
Row = dict[str, Any]


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
    def describe(self) -> Row:
        """The parameters of the point, for every row."""


@dataclass(frozen=True, kw_only=True)
class OnGpu:
    """Ranks that are threads of one process, on its GPUs."""

    backend: str
    devices: tuple[int, ...]  # rank r has that of r modulo their number
    calls: int  # between two events
    graph: bool  # whether these calls are captured once, and replayed


@dataclass(frozen=True, kw_only=True)
class Request:
    """The work of one launch: all points with the same number of ranks, with one MPI or none."""

    operator: str
    points: tuple[Any, ...]
    iterations: int
    threads: int
    own: tuple[str, ...] = ()  # variants of collops
    peers: tuple[str, ...] = ()  # other libraries
    alone: bool = False  # whether nothing is measured beside `own`
    most_s: float = float("inf")  # of a point, after which no further round begins
    mpi: str = ""  # the name of the one that started the ranks
    seed: int = 1
    gpu: OnGpu | None = None  # None: the ranks compute on the host


def module_with_torch(name: str) -> Any:
    """The module of that name, which needs torch.

    Raises:
        ValueError: torch is not installed, or cannot be used.
    """
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        why = "is not installed (pip install torch)" if absent else f"cannot be used: {error}"
        raise ValueError(f"torch {why}") from None


class Operator(ABC):
    """The options, points and variants of an operator, and how its rows are shown.

    A subclass defines name, description, epilog (what is measured without arguments), quick (what
    --quick takes), own (the variants of collops, in the order in which they are shown) and
    reference (the variant with whose result the others are compared), and may change the others.
    """

    name: str
    description: str
    epilog: str
    quick: str
    own: tuple[str, ...] = ()
    reference: str = ""
    on_gpu: tuple[str, ...] = ()  # own on a GPU; empty: it has no benchmark there
    peers: tuple[str, ...] = ()  # what --peers may name
    usual_peers: tuple[str, ...] = ()  # without --peers
    torch_columns: str = ""  # the columns of the peers that need torch, in notes
    dtypes: tuple[str, ...] = tuple(NAMES)  # --dtype's default; empty: no such option
    iterations: tuple[int, int] = (15, 3)  # --iterations' default, and that of --quick
    several_hosts: bool = False  # whether its ranks may be on several hosts
    plotted: str = "draw the time as stacked parts"
    variants: ClassVar[Any] = None  # the class of its Variants

    @abstractmethod
    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Adds those of this operator."""

    def settle(self, options: argparse.Namespace) -> None:
        """Makes options fit each other, once they are read."""
        del options

    @abstractmethod
    def points(self, options: argparse.Namespace) -> Sequence[Any]:
        """The points in the order of the tables.

        Raises:
            ValueError: the options do not fit together, or a package is missing.
        """

    def measure(self, request: Request, store: str) -> Iterator[Row] | None:
        """The lines of rank 0, where this operator measures in its own way."""
        return None

    def rows(self, record: Row) -> list[Row]:
        """One row per variant of a measured point, with its ratios to other variants."""
        point = {key: value for key, value in record.items() if key not in ("record", "columns")}
        others = {row["column"]: row for row in record["columns"]}
        return [self.compare({**point, **row}, others) for row in others.values()]

    def compare(self, row: Row, others: dict[str, Row]) -> Row:
        """The row with its ratios to other rows of its point."""
        return row

    def head(self, row: Row) -> str:
        """The text above a launch's points, from a row of the first one."""
        return ""

    @abstractmethod
    def text(self, rows: list[Row]) -> str:
        """The text of a point."""

    def foot(self, points: list[list[Row]]) -> str:
        """The text below a launch's points."""
        return ""

    def summary(self, points: list[list[Row]]) -> str:
        """The text below the points of all launches."""
        return ""

    def spread(self, row: Row) -> float:
        """How far the times of a row are apart."""
        return float(row["ms_p95"] / row["ms_min"]) if row["ms_min"] > 0 else 1.0

    def is_wrong(self, row: Row) -> bool:
        """Whether a result of the row is wrong."""
        return bool(row["wrong_ranks"])

    @abstractmethod
    def save_plot(self, path: Path, points: list[list[Row]]) -> None:
        """Writes the picture of all points."""
