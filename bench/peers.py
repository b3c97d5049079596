"""The libraries of a run: collops and the MPIs, each MPI with several settings.

``default`` is what the MPI does by itself. ``heap`` lets glibc keep freed memory: temporaries of
the library are then not mapped, faulted in and unmapped in every call. ``tuned`` is ``heap`` with
variables that are meant to move long messages in another way: without copies by the kernel from one
process to another (CMA), or without Intel MPI's forward cells. ``shm_heap`` is Intel MPI's library
for a heap in shared memory. Which one is faster depends on the machine.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
# Behind the installed package, if there is one. The module is the one place that knows how each MPI
# starts ranks; it needs neither numpy nor the core.
sys.path.append(str(ROOT / "python"))
from collops.bench.peers.mpi_launcher import find_mpis  # noqa: E402

if TYPE_CHECKING:
    from collops.bench.peers.mpi_launcher import Mpi

__all__ = ["SETTINGS", "Peer", "clean_environment", "find_mpis", "mpi_peers"]

COLLOPS = "collops"
_HEAP = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
# Environment variables by MPI and setting; an MPI that is not named here has the first two.
_COMMON: dict[str, dict[str, str]] = {"default": {}, "heap": _HEAP}
SETTINGS: dict[str, dict[str, dict[str, str]]] = {
    "Open MPI": {**_COMMON, "tuned": {**_HEAP, "OMPI_MCA_smsc": "^cma"}},
    "MPICH": {**_COMMON, "tuned": {**_HEAP, "MPIR_CVAR_CH4_CMA_ENABLE": "0"}},
    "Intel MPI": {
        **_COMMON,
        "tuned": {**_HEAP, "I_MPI_SHM_CELL_FWD_SIZE": "0"},
        "shm_heap": {"LD_PRELOAD": "libmpi_shm_heap_proxy.so", "I_MPI_SHM_HEAP": "1"},
    },
}
# Variables of this process that would change a library's settings; the ranks do not get them.
_DROPPED = (
    *("COLLOPS_", "MALLOC_", "LD_PRELOAD", "OMPI_", "OPAL_", "PMIX_", "PRTE_", "I_MPI_"),
    *("FI_", "UCX_", "HYDRA_", "MPIR_", "MPICH_", "PMI_", "OMP_"),
)
# By this one the tests know what a launch has left behind.
_KEPT = ("COLLOPS_TEST_RUN",)


@dataclass(frozen=True)
class Peer:
    """A library with its settings.

    Attributes:
        name: as the tables print it.
        program: the benchmark program.
        version: what the library says of itself.
        settings: environment variables that choose how the library works.
        mpi: what starts the ranks; None: the program itself.
    """

    name: str
    program: Path
    version: str
    settings: dict[str, str] = field(default_factory=dict)
    mpi: Mpi | None = None

    def command(self, ranks: int, arguments: list[str]) -> list[str]:
        """The words that start the ranks."""
        launcher = self.mpi.command(ranks) if self.mpi else []
        return [*launcher, str(self.program), *arguments]

    def environment(self, ranks: int) -> dict[str, str]:
        """All environment variables of the ranks."""
        launcher = self.mpi.variables(ranks) if self.mpi else {}
        return {**clean_environment(), **launcher, **self.settings}

    def record(self, ranks: list[int]) -> dict[str, object]:
        """What the run's file says of this peer; no path of the machine."""
        record: dict[str, object] = {
            "name": self.name,
            "version": self.version,
            "settings": self.settings,
        }
        if self.mpi:
            record["launcher"] = self.mpi.command(max(ranks))[1:]
            record["launcher_variables"] = {
                str(number): {
                    name: value
                    for name, value in self.mpi.variables(number).items()
                    if name not in self.mpi.environment
                }
                for number in ranks
            }
        return record


def clean_environment() -> dict[str, str]:
    """This process's variables, without those that would change a library's settings."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not name.startswith(_DROPPED)
    }


def mpi_peers(mpi: Mpi, program: Path, version: str, wanted: list[str]) -> list[Peer]:
    """An MPI with each of the wanted settings that it has."""
    settings = SETTINGS.get(mpi.name, _COMMON)
    return [
        Peer(f"{mpi.name} {name}", program, version, variables, mpi)
        for name, variables in settings.items()
        if name in wanted or not wanted
    ]
