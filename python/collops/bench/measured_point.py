"""Measures one point on one rank: makes its columns, runs them, compares and describes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from collops.bench.groups import Groups
from collops.bench.measure import interleave, own_slowest, place_us, together, typical_parts
from collops.bench.memory import added_bytes
from collops.bench.operators.linear_parallel.variants import OwnColumns

if TYPE_CHECKING:
    from collops.bench.peers.installed import Peers
    from collops.bench.request import Point, Request
    from collops.bench.variant import Column

REFERENCE = "fused_window"


class LinearPoint:
    """One point: the columns, and what was found about each.

    Args:
        point: what is measured.
        request: of which it is a part.
        work: a communicator of all ranks, for what is not measured.
        meet: waits for all ranks, on another communicator.
        peers: the other libraries that there are.
    """

    def __init__(
        self, point: Point, request: Request, work: Any, meet: Callable[[], None], peers: Peers
    ) -> None:
        self._point, self._request, self._work, self._meet = point, request, work, meet
        groups = Groups.of(point, work.rank)
        self._groups = groups
        self._own = OwnColumns(point, groups, work, request.seed)
        self._peers = peers.columns(self._own)
        self.notes: list[str] = []
        self._memory: dict[str, tuple[int, int] | None] = {}

    def run(self) -> dict[str, Any]:
        """Measures, and returns what rank 0 writes."""
        makers = self._makers()
        columns = [column for key in makers if (column := self._first_call(key, makers[key]))]
        before = place_us(self._meet)
        times = interleave(columns, self._request.iterations, self._rewrite, self._meet)
        after = place_us(self._meet)
        wrong = self._wrong(columns)
        everyone = self._work.all_gatherv(times[None], [1] * self._work.size)
        self._own.close()
        return {
            "record": "point",
            **self._describe(),
            "place_us": [round(before, 2), round(after, 2)],
            "columns": [
                self._row(column, everyone[:, i], wrong[i]) for i, column in enumerate(columns)
            ],
        }

    def _makers(self) -> dict[str, Callable[[], Column]]:
        """Each column's name and what makes it; what cannot be had here has a note instead."""
        makers: dict[str, Callable[[], Column]] = {
            key: partial(self._own.make, key) for key in self._request.own
        }
        for key, make in self._peers.makers(self._point.title, self.notes, self._most):
            makers[key] = make
        return makers

    def _most(self, value: float) -> float:
        """The largest of the ranks' values."""
        return float(self._work.all_reduce(np.array([value]), op="max")[0])

    def _rewrite(self, x: Any) -> None:
        self._own.element.flip(x)

    def _first_call(self, key: str, make: Callable[[], Column]) -> Column | None:
        """The column after its first call, of which the memory is measured."""
        problem = ""
        column = None
        try:
            column = make()
            if column.x is not None:
                self._rewrite(column.x)
            self._memory[key] = added_bytes(column.run, self._meet)
        except Exception as error:  # another library's own limits are a result, too
            problem = f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[0]}"
            if key in self._request.own:
                raise
        if self._most(float(bool(problem))):
            text = problem or "failed on another rank"
            self.notes.append(f"{self._point.title}: no column {key}: {text}")
            return None
        return column

    def _wrong(self, columns: list[Column]) -> list[int | None]:
        """For each column, on how many ranks its result is not that of the fused call."""
        reference = next((c.result for c in columns if c.key == REFERENCE), None)
        found: list[int | None] = []
        for column in columns:
            if reference is None or column.result is None:
                found.append(None)
                continue
            bad = self._own.element.num_different(column.result, reference) > 0
            found.append(int(self._work.all_reduce(np.array([int(bad)]))[0]))
        return found

    def _describe(self) -> dict[str, Any]:
        point, groups = self._point, self._groups
        m, k, n = point.shape
        return {
            "bench": "linear_parallel",
            "mpi": self._request.mpi,
            "type": point.type,
            "dtype": point.dtype,
            "ranks": point.ranks,
            "grid": list(point.grid),
            "gather_rows": list(groups.gather.rows),
            "scatter_rows": list(groups.scatter.rows),
            "m": m,
            "k": k,
            "n": n,
            "iterations": self._request.iterations,
            "threads": self._request.threads,
        }

    def _row(self, column: Column, times: Any, wrong: int | None) -> dict[str, Any]:
        """One column's figures; `times` are [ranks, iterations, 2 + parts]."""
        median, low, high = np.percentile(together(times), [50, 10, 90]) * 1e3
        parts = typical_parts(times) * 1e3
        operations = column.operations or self._own.operations
        return {
            "column": column.key,
            "label": column.label,
            "ms": round(float(median), 5),
            "ms_p10": round(float(low), 5),
            "ms_p90": round(float(high), 5),
            "ms_own": round(float(np.median(own_slowest(times))) * 1e3, 5),
            "parts_ms": {
                name: round(float(ms), 5)
                for (name, _), ms in zip(column.steps, parts, strict=False)
            },
            "gflops": round(operations / float(median) * 1e-6, 2),
            "wrong_ranks": wrong,
            "scratch_mib": round(column.scratch_bytes / 2**20, 2),
            **self._memory_of(column.key),
        }

    def _memory_of(self, key: str) -> dict[str, Any]:
        """Bytes per rank: the most that one adds for itself, and the mean of what they share."""
        found = self._memory.get(key)
        alone, shared = found or (0, 0)
        known = self._most(float(found is None)) == 0
        most = self._most(float(alone))
        total = float(self._work.all_reduce(np.array([float(shared)]))[0])
        if not known:
            return {"memory_mib": None, "memory_shared_mib": None}
        mean = max(total / self._work.size, 0.0)
        return {
            "memory_mib": round((most + mean) / 2**20, 2),
            "memory_shared_mib": round(mean / 2**20, 2),
        }
