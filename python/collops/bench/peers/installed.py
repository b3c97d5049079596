"""The other libraries of a launch: those that are there, and why the others are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from collops.bench.peers.numpy_calls import numpy_alone
from collops.bench.variant import Column

if TYPE_CHECKING:
    from collops.bench.operators.linear_parallel.baselines import PeerColumns
    from collops.bench.operators.linear_parallel.variants import OwnColumns
    from collops.bench.request import Request

_NO_TORCH = "torch is not installed (pip install torch): no columns of torch.matmul, MPI and gloo"

# A product that takes longer than this, and so much longer than the arithmetic, has no kernel here.
_ALWAYS_S = 0.2
_MOST_TIMES = 6


class Peers:
    """torch, gloo and MPI as far as they were asked for and are installed.

    Args:
        request: which are wanted, and the MPI that started this rank.
        store: path at which gloo's ranks meet.
        rank: this rank.
        size: number of ranks.
    """

    def __init__(self, request: Request, store: str, rank: int, size: int) -> None:
        self.notes: list[str] = []
        self._wanted = request.peers
        self.mpi = self._load_mpi(request, rank, size)
        self.torch = self._load_torch(request)
        self.gloo: Any = None
        if self.torch is not None and "gloo" in request.peers:
            # Before this rank is pinned: gloo's own threads may use every core.
            self.gloo = self.torch.Gloo(store, rank, size)

    def _load_torch(self, request: Request) -> Any:
        if not {"mpi", "gloo", "torch"} & set(request.peers):
            return None
        try:
            from collops.bench.peers import torch_calls
        except ModuleNotFoundError:
            self.notes.append(_NO_TORCH)
            return None
        torch_calls.set_threads(request.threads)
        return torch_calls

    def _load_mpi(self, request: Request, rank: int, size: int) -> Any:
        if "mpi" not in request.peers:
            return None
        if not request.mpi:
            self.notes.append("no MPI started the ranks (--mpi PREFIX): no columns of MPI")
            return None
        try:
            from collops.bench.peers import mpi_calls
        except (ImportError, RuntimeError) as error:
            self.notes.append(
                f"{request.mpi}: no columns of MPI: mpi4py (pip install mpi4py) cannot "
                f"be used: {error}"
            )
            return None
        if mpi_calls.rank_and_size() != (rank, size):
            self.notes.append(
                f"{request.mpi}: no columns of MPI: mpi4py has loaded another MPI than the one "
                f"that started the ranks ({mpi_calls.loaded_name()})"
            )
            return None
        return mpi_calls

    def columns(self, own: OwnColumns) -> PointPeers:
        """What there is for one point."""
        if self.torch is None:
            return PointPeers(own, None, self._wanted)
        from collops.bench.operators.linear_parallel.baselines import PeerColumns

        return PointPeers(own, PeerColumns(own, self.gloo, self.mpi), self._wanted)

    def close(self) -> None:
        """Leaves gloo's process group."""
        if self.gloo is not None:
            self.gloo.close()


class PointPeers:
    """The other libraries' columns of one point."""

    def __init__(
        self, own: OwnColumns, columns: PeerColumns | None, wanted: tuple[str, ...]
    ) -> None:
        self._own, self._columns, self._wanted = own, columns, wanted

    def makers(
        self, title: str, notes: list[str], most: Callable[[float], float]
    ) -> Iterator[tuple[str, Callable[[], Column]]]:
        """Each column's name and what makes it; a product that is too slow has a note instead."""
        columns = self._columns
        if columns is not None:
            seconds, least = most(columns.expected_s()), most(self._own.least_s())
            if seconds > max(_ALWAYS_S, _MOST_TIMES * least):
                notes.append(
                    f"{title}: no columns of torch: its product would take about {seconds:.1f} s, "
                    f"{seconds / least:.0f} times what the arithmetic takes"
                )
            else:
                for key in columns.names():
                    yield key, partial(columns.make, key)
                if "torch" in self._wanted:
                    yield "torch", columns.torch_alone
        if "numpy" in self._wanted and self._own.point.dtype == "f32":
            yield "numpy", lambda: numpy_alone(self._own)
