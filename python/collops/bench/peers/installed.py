"""The other libraries of a launch: the installed ones, and why others are missing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from collops.bench.request import Request

if TYPE_CHECKING:
    from collops.bench.operator import Operator


class Peers:
    """torch, gloo and MPI as far as they were asked for and are installed.

    Args:
        request: the wanted libraries, and the MPI that started this rank.
        operator: the measured operator.
        store: URL at which gloo's ranks meet, as torch.distributed takes it.
        rank: this rank.
        size: number of ranks.
    """

    def __init__(
        self, request: Request, operator: Operator, store: str, rank: int, size: int
    ) -> None:
        self.notes: list[str] = []
        self.cores = frozenset(os.sched_getaffinity(0))  # before this rank is pinned
        self._said: set[str] = set()
        self.wanted = request.peers
        self.mpi: Any = None
        self.torch: Any = None
        self.gloo: Any = None
        if "mpi" in self.wanted:
            self._load_mpi(request.mpi, rank, size)
        if {*operator.torch_peers} & {*self.wanted}:
            self._load_torch(request.threads, operator.torch_columns)
        if self.torch is not None and "gloo" in self.wanted:
            # Called before this rank is pinned, so that gloo's own threads may use every core.
            self.gloo = self.torch.Gloo(store, rank, size)

    def _load_torch(self, threads: int, columns: str) -> None:
        try:
            from collops.bench.peers import torch_calls
        except (ImportError, OSError) as error:
            absent = isinstance(error, ModuleNotFoundError) and error.name == "torch"
            why = "is not installed (pip install torch)" if absent else f"cannot be used: {error}"
            self.notes.append(f"torch {why}: no columns of {columns}")
            return
        torch_calls.set_threads(threads)
        self.torch = torch_calls

    def _load_mpi(self, name: str, rank: int, size: int) -> None:
        if not name:
            self.notes.append("no MPI started the ranks (--mpi PREFIX): no columns of MPI")
            return
        without = f"{name}: no columns of MPI: mpi4py"
        try:
            from collops.bench.peers import mpi_calls
        except (ImportError, RuntimeError) as error:
            self.notes.append(f"{without} (pip install mpi4py) cannot be used: {error}")
            return
        if mpi_calls.rank_and_size() == (rank, size):
            self.mpi = mpi_calls
            return
        self.notes.append(
            f"{without} has loaded another MPI than the one that started the ranks "
            f"({mpi_calls.loaded_name()})"
        )

    def is_new(self, text: str) -> bool:
        """Whether a note is heard for the first time."""
        new = text not in self._said
        self._said.add(text)
        return new

    def close(self) -> None:
        """Leaves gloo's process group."""
        if self.gloo is not None:
            self.gloo.close()
