"""GpuPlace: a rank's GPU, its stream, and the timing of calls on it by events."""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from collops.bench.gpu import machine
from collops.bench.gpu.ceiling import copy_ceiling
from collops.bench.gpu.element import DeviceElement
from collops.bench.measure import END, MOST_PARTS, PARTS, WARM_UP, Times, orders
from collops.bench.peers import NCCL
from collops.bench.variant import Meet, Place, Rewrite, Rounds
from collops.core import core

if TYPE_CHECKING:
    from collops.bench.collectives.variants import CollectiveVariants
    from collops.bench.measure import Maker, Run, Variant
    from collops.bench.operator import Operator
    from collops.bench.request import OnGpu
    from collops.bench.variant import Variants

# Buffers of all ranks together are this many times as large as the L2, up to so many of each.
_TIMES_L2, _MOST_TURNS = 2, 16


_drawn: dict[tuple[Any, ...], Any] = {}
_drawn_lock = threading.Lock()


class GpuPlace(Place):
    """One rank's place on a GPU that it may share with other ranks.

    Args:
        given: the backend, the GPUs, and how calls are timed.
        rank: this rank, whose GPU is that of its number modulo the number of GPUs.
        size: the number of ranks.
    """

    def __init__(self, given: OnGpu, rank: int, size: int) -> None:
        self.given, self.backend, self.size = given, given.backend, size
        self.devices = [given.devices[other % len(given.devices)] for other in range(size)]
        self.device = self.devices[rank]
        core().use_cuda_device(self.device)
        self.stream = core().CudaStream(self.device)
        self._events = [core().CudaEvent(self.device) for _ in range(2)]
        self._turns: dict[str, int] = {}
        self._machine = machine.facts(self.device)

    def element(self, dtype: str) -> DeviceElement:
        """The type of the elements, whose matrices are in this GPU's memory."""
        return DeviceElement(dtype, self.stream)

    def others(self, variants: Any) -> Iterator[tuple[str, Maker]]:
        """The ceiling of copies, and the backend nccl beside another one."""
        own: CollectiveVariants = variants
        yield "limit", partial(copy_ceiling, own)
        if NCCL in own.peers.wanted and self.backend != NCCL:
            yield NCCL, partial(own.called, NCCL, NCCL, NCCL, False)

    def own_keys(self, operator: Operator, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """Those that the operator has on a GPU."""
        del wanted
        return operator.on_gpu

    def reference(self, operator: Operator) -> str:
        """The first of the operator's own variants."""
        return operator.on_gpu[0]

    def shared(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """All ranks' data is drawn once for all; that of an earlier point is forgotten."""
        with _drawn_lock:
            for other in [other for other in _drawn if other[0] != key[0]]:
                del _drawn[other]
            if key not in _drawn:
                _drawn[key] = make()
            return _drawn[key]

    def repeat(self, variant: Variant, make: Maker, of: Variants) -> None:
        """Makes the variant so often that the calls' buffers do not stay in the L2."""
        buffers = [matrix for matrix in (variant.x, variant.result) if matrix is not None]
        own_bytes = sum(matrix.nbytes for matrix in buffers) + variant.held_bytes
        all_bytes = of.most(float(own_bytes)) * max(map(self.devices.count, self.devices))
        turns = math.ceil(_TIMES_L2 * self._machine["l2_bytes"] / max(all_bytes, 1.0))
        for _ in range(1, min(turns, _MOST_TURNS)):
            variant.again.append(make())
        # Memory is made before any kernel waits for its peers.
        variant.facts["buffers"] = int(of.most(float(len(variant.turns))))
        for other in variant.again:
            if other.x is not None:
                of.element.flip(other.x)
            other.run()
            self.wait()

    def added_bytes(self, call: Run, meet: Meet) -> None:
        """Makes the call; what it adds to a GPU that ranks share cannot be told apart."""
        meet()
        call()
        self.wait()
        meet()

    def barrier_us(self, meet: Meet) -> None:
        """None: ranks that share a process and a GPU are near."""
        del meet

    def checked_call(self, turn: Variant, meet: Meet) -> None:
        """As the host's; with graphs it is the replay of a captured call."""
        meet()  # a graph is made while no kernel waits
        graph = self._captured(turn.run)
        meet()
        if graph is None:
            turn.run()
        else:
            graph.launch(self.stream)
        self.wait()

    def wait(self) -> None:
        """Returns when this rank's stream has come to its end."""
        self.stream.synchronize()

    def times(self, variants: list[Variant], rounds: Rounds, rewrite: Rewrite, meet: Meet) -> Times:
        """Seconds of a call of each variant in each round, by events around several calls."""
        del rewrite
        times = np.full((len(variants), rounds.number, PARTS + MOST_PARTS), math.nan)
        times[..., : END + 1] = 0.0
        gc.collect()
        gc.disable()
        try:
            # As memory is, graphs are made before any kernel waits for its peers.
            meet()
            graphs = {
                variant.key: self._captured(partial(self._calls, variant)) for variant in variants
            }
            meet()
            for i, order in enumerate(orders(len(variants), rounds.number + WARM_UP), -WARM_UP):
                for number in order:
                    variant = variants[number]
                    meet()
                    seconds = self._seconds(variant, graphs[variant.key])
                    if i >= 0:
                        times[number, i, END] = seconds
                        if len(variant.steps) == 1:
                            times[number, i, PARTS] = seconds
        finally:
            gc.enable()
        return times

    def _captured(self, calls: Callable[[], None]) -> Any:
        """The graph of the calls; None if they are made one by one."""
        if not self.given.graph:
            return None
        self.stream.begin_capture()
        try:
            calls()
        finally:
            graph = self.stream.end_capture()
        return graph

    def _seconds(self, variant: Variant, graph: Any) -> float:
        """Seconds of one of the calls between two events.

        A call, or the graph of calls, before the first event does not count: when it ends, every
        rank has begun.
        """
        begin, end = self._events
        if graph is None:
            self._call(variant)
        else:
            graph.launch(self.stream)
        begin.record(self.stream)
        if graph is None:
            self._calls(variant)
        else:
            graph.launch(self.stream)
        end.record(self.stream)
        self.wait()
        return float(end.elapsed_ms(begin)) * 1e-3 / self.given.calls

    def _call(self, variant: Variant) -> None:
        turn = self._turns.get(variant.key, 0)
        for _, step in variant.turns[turn % len(variant.turns)].steps:
            step()
        self._turns[variant.key] = turn + 1

    def _calls(self, variant: Variant) -> None:
        for _ in range(self.given.calls):
            self._call(variant)

    def num_rewrites(self, rounds: Rounds) -> int:
        """None: calls take turns on several buffers instead."""
        del rounds
        return 0

    def calls_in(self, rounds: Rounds) -> int:
        """One time in each round, the mean of its calls."""
        return rounds.number

    def facts(self) -> dict[str, Any]:
        """The GPU, the versions, and how calls were timed."""
        return {
            **self._machine,
            "devices": self.devices,
            "calls": self.given.calls,
            "graph": self.given.graph,
        }
