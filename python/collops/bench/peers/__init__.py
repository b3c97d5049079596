"""What operators are compared with: a module for each other library, and those of a launch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from collops.bench.operator import Operator, Request

# Beside a backend of GPUs: collops' own backend nccl, and torch.distributed's collectives.
NCCL, TORCH_NCCL, TORCH_SYMM = GPU_PEERS = ("nccl", "torch_nccl", "torch_symm")
# Programs that measure the link between two hosts.
LINK_PEERS = ("ucx_perftest", "iperf3")


class Peers:
    """torch, gloo and MPI as far as a request wants them and they are installed.

    gloo's ranks meet at the URL `store`, as torch.distributed takes it.
    """

    def __init__(
        self, request: Request, operator: Operator, store: str, rank: int, size: int
    ) -> None:
        self.notes: list[str] = []
        self.cores = frozenset(os.sched_getaffinity(0))  # before this rank is pinned
        self.wanted = request.peers
        self.mpi: Any = None
        self.torch: Any = None
        self.gloo: Any = None
        self._said: set[str] = set()
        if "mpi" in self.wanted:
            self._load_mpi(request.mpi, rank, size)
        of_torch = {"gloo"} if operator.several_hosts else {"mpi", "gloo", "torch"}
        if of_torch & {*self.wanted}:
            self._load_torch(request.threads, operator.torch_columns)
        if self.torch is not None and "gloo" in self.wanted:
            # Called before this rank is pinned, so that gloo's own threads may use every core.
            self.gloo = self.torch.Gloo(store, rank, size)

    def _load_torch(self, threads: int, columns: str) -> None:
        try:
            from collops.bench.peers import gloo
        except (ImportError, OSError) as error:
            absent = isinstance(error, ModuleNotFoundError) and error.name == "torch"
            why = "is not installed (pip install torch)" if absent else f"cannot be used: {error}"
            self.notes.append(f"torch {why}: no columns of {columns}")
            return
        gloo.set_threads(threads)
        self.torch = gloo

    def _load_mpi(self, name: str, rank: int, size: int) -> None:
        if not name:
            self.notes.append("no MPI started the ranks (--mpi PREFIX): no columns of MPI")
            return
        without = f"{name}: no columns of MPI: mpi4py"
        try:
            from collops.bench.peers import mpi
        except (ImportError, RuntimeError) as error:
            self.notes.append(f"{without} (pip install mpi4py) cannot be used: {error}")
            return
        if mpi.rank_and_size() == (rank, size):
            self.mpi = mpi
            return
        self.notes.append(
            f"{without} has loaded another MPI than the one that started the ranks "
            f"({mpi.loaded_name()})"
        )

    def collective(self, own: Any) -> Iterator[tuple[str, str, Any, frozenset[int]]]:
        """Key, label, function and cores of each way of another library to make a collective.

        The function takes x and result and returns the steps; without cores it is pinned as collops
        is.
        """
        ways: Sequence[tuple[Any, frozenset[int]]] = (
            (self.mpi and self.mpi.collective, frozenset()),
            (self.gloo and self.gloo.collective, self.cores),
        )
        for calls, cores in ways:
            for key, label, steps in calls(own) if calls else ():
                yield key, label, steps, cores

    def is_new(self, text: str) -> bool:
        """Whether a note is heard for the first time."""
        new = text not in self._said
        self._said.add(text)
        return new

    def close(self) -> None:
        """Leaves gloo's process group."""
        if self.gloo is not None:
            self.gloo.close()
