"""Benchmarks on GPUs: ranks that are threads of one process, timed by events of CUDA's driver.

A GpuPlace stands in for the host's Place: the operators say what is measured, as on the host.
"""

from __future__ import annotations

import ctypes
import gc
import math
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import collops
from collops.bench.elements import Bits, Element
from collops.bench.measure import (
    END,
    MOST_PARTS,
    PARTS,
    WARM_UP,
    Maker,
    Meet,
    Rewrite,
    Rounds,
    Run,
    Times,
    Variant,
    orders,
)
from collops.bench.operator import OnGpu
from collops.bench.peers import NCCL
from collops.bench.variants import Place, Variants
from collops.core import core

_DRIVER = "libcuda.so.1"
# Only the driver of tests/gpu/sim has it.
_SIMULATION = "SimHoldStream"
_VERSION = Path("/proc/driver/nvidia/version")
# Larger matrices repeat their first elements; a prime number, so that no row begins like another.
_MOST_DRAWN = 8_388_593
# Buffers of all ranks together are this many times as large as the L2, up to so many of each.
_TIMES_L2, _MOST_TURNS = 2, 16


_drawn: dict[tuple[Any, ...], Any] = {}
_drawn_lock = threading.Lock()


def is_simulated() -> bool:
    """Whether the driver is the one of the tests, which runs on the CPU."""
    try:
        return hasattr(ctypes.CDLL(_DRIVER), _SIMULATION)
    except OSError:
        return False


def check(backend: str, devices: tuple[int, ...]) -> None:
    """Raises ValueError unless the backend can run here, on these GPUs."""
    reasons = {name: reason for name, reason, _, _ in core().backends()}
    if backend not in reasons:
        raise ValueError(f"backend {backend!r} is not in this build of collops")
    if reasons[backend]:
        raise ValueError(reasons[backend])
    count = len(core().cuda_devices())
    if max(devices) >= count:
        raise ValueError(f"--devices {max(devices)}: there are {count} GPUs, from 0 on")


def machine_facts(device: int) -> dict[str, Any]:
    """The GPU and the versions of what runs on it."""
    name, l2_bytes, multiprocessors = core().cuda_devices()[device]
    versions = dict(core().backend_facts("nccl"))
    return {
        "simulated": is_simulated(),
        "device": name,
        "multiprocessors": multiprocessors,
        "l2_bytes": l2_bytes,
        "driver": driver_version(),
        "driver_cuda": versions.get("CUDA of the driver"),
        "nccl": versions.get("NCCL"),
    }


def driver_version(path: Path = _VERSION) -> str | None:
    """The driver's own version, such as 580.65.06; None where the system does not say it."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None
    found = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", text)
    return found.group() if found else None


class DeviceMatrix:
    """A matrix of a GPU; `array` is what collops takes."""

    def __init__(self, shape: tuple[int, ...], name: str, bits: np.dtype[Any], stream: Any) -> None:
        self.array = collops.cuda_empty(shape, name, stream.device)
        self.shape, self.dtype, self._stream = shape, bits, stream
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * bits.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def read(self) -> Bits:
        """The bits of all elements."""
        bits: Bits = self.array.read(self._stream).view(self.dtype)
        return bits

    def write(self, bits: Bits) -> None:
        """Rewrites all elements."""
        self.array.write(bits.view(self.array.dtype), self._stream)


class DeviceElement(Element):
    """An element type whose matrices are those of one GPU, written and read on a rank's stream."""

    def __init__(self, dtype: str, stream: Any) -> None:
        super().__init__(dtype)
        self._stream = stream
        self._scratch: Any = None
        self._scratch_bytes = 0

    def numbers(self, bits: Any) -> Any:
        return bits.array

    def matrix(self, rows: int, columns: int) -> Any:
        return DeviceMatrix((rows, columns), self.name, self.bits, self._stream)

    def scratch(self, num_bytes: int) -> Any:
        """Memory for a call's workspace; one for all calls, which follow each other on a stream."""
        if num_bytes > self._scratch_bytes:
            self._scratch = collops.cuda_empty((num_bytes,), "uint8", self._stream.device)
            self._scratch_bytes = num_bytes
        return self._scratch

    def poison(self, matrix: Any) -> None:
        bits = np.empty(matrix.shape, self.bits)
        super().poison(bits)
        matrix.write(bits)

    def flip(self, matrix: Any) -> None:
        """Rewrites every element with the other sign; of the host's matrices, too."""
        bits = _on_host(matrix)
        super().flip(bits)
        if bits is not matrix:
            matrix.write(bits)

    def num_different(self, a: Any, b: Any) -> int:
        """How many elements differ, of matrices of the GPU or of the host."""
        return super().num_different(_on_host(a), _on_host(b))

    def _draw(self, matrix: Any, seed: tuple[int, ...], values: Any) -> None:
        bits = np.empty(min(matrix.nbytes // self.bits.itemsize, _MOST_DRAWN), self.bits)
        super()._draw(bits, seed, values)
        matrix.write(np.resize(bits, matrix.shape))


def _on_host(matrix: Any) -> Bits:
    bits: Bits = matrix.read() if isinstance(matrix, DeviceMatrix) else matrix
    return bits


def copy_ceiling(own: Any) -> Variant:
    """Copies inside the GPU's memory on all ranks' streams at once; a call of all ranks.

    The collective has to read every x once and to write every result once: (P + 1) * S bytes for an
    AllGatherV or a ReduceScatterV of P ranks and S bytes. A copy reads and writes, so the ranks
    copy half as many bytes, each an equal part of them.
    """
    item = own.element.bits.itemsize
    own_bytes = (own.x_rows(own.rank) + own.result_rows()) * item
    moved = int(own.work.all_reduce(np.array([own_bytes], np.int64), op="sum")[0])
    elements = max(1, moved // (2 * own.size * item))
    source: Any = own.element.matrix(elements, 1)
    target: Any = own.element.matrix(elements, 1)
    own.element.poison(source)
    copied = elements * item
    copy = own.place.stream.copy

    def run() -> None:
        copy(target.array.ptr, source.array.ptr, copied)

    variant = Variant("limit", "limit", [("move", run)], held_bytes=2 * copied)
    variant.facts["copied_bytes"] = copied * own.size
    return variant


class GpuPlace(Place):
    """One rank's place on a GPU that it may share with other ranks."""

    def __init__(self, given: OnGpu, rank: int, size: int) -> None:
        self.given, self.backend, self.size = given, given.backend, size
        self.devices = [given.devices[other % len(given.devices)] for other in range(size)]
        self.device = self.devices[rank]
        core().use_cuda_device(self.device)
        self.stream = core().CudaStream(self.device)
        self._events = [core().CudaEvent(self.device) for _ in range(2)]
        self._turns: dict[str, int] = {}
        self._machine = machine_facts(self.device)

    def element(self, dtype: str) -> DeviceElement:
        return DeviceElement(dtype, self.stream)

    def others(self, variants: Any) -> Iterator[tuple[str, Maker]]:
        """The ceiling of copies, and the backend nccl beside another one."""
        yield "limit", partial(copy_ceiling, variants)
        if NCCL in variants.peers.wanted and self.backend != NCCL:
            yield NCCL, partial(variants.called, NCCL, NCCL, NCCL, False)

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

    def checked_call(self, turn: Variant, meet: Meet) -> None:
        """As the host's; with graphs it is the replay of a captured call."""
        meet()  # a graph is made while no kernel waits
        run = self._captured(turn.run)
        meet()
        run()
        self.wait()

    def wait(self) -> None:
        """Returns when this rank's stream has come to its end."""
        self.stream.synchronize()

    def times(
        self,
        variants: list[Variant],
        rounds: Rounds,
        rewrite: Rewrite,
        meet: Meet,
        most: Callable[[float], float],
    ) -> Times:
        """Seconds of a call of each variant in each round, by events around several calls.

        Nothing is rewritten: calls take turns on several buffers instead.
        """
        times = np.full((len(variants), rounds.number, PARTS + MOST_PARTS), math.nan)
        times[..., : END + 1] = 0.0
        gc.collect()
        gc.disable()
        try:
            # As memory is, graphs are made before any kernel waits for its peers.
            meet()
            runs = [self._captured(partial(self._calls, variant)) for variant in variants]
            meet()
            for i, order in enumerate(orders(len(variants), rounds.number + WARM_UP), -WARM_UP):
                for number in order:
                    variant = variants[number]
                    meet()
                    seconds = self._seconds(variant, runs[number])
                    if i >= 0:
                        times[number, i, END] = seconds
                        if len(variant.steps) == 1:
                            times[number, i, PARTS] = seconds
        finally:
            gc.enable()
        return times

    def _captured(self, calls: Run) -> Run:
        """The replay of the calls' graph; the calls themselves if they are made one by one."""
        if not self.given.graph:
            return calls
        self.stream.begin_capture()
        try:
            calls()
        finally:
            graph = self.stream.end_capture()
        return partial(graph.launch, self.stream)

    def _seconds(self, variant: Variant, calls: Run) -> float:
        """Seconds of one of the calls between two events.

        A call, or the graph of calls, before the first event does not count: when it ends, every
        rank has begun.
        """
        begin, end = self._events
        if self.given.graph:
            calls()
        else:
            self._call(variant)
        begin.record(self.stream)
        calls()
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

    def facts(self) -> dict[str, Any]:
        return {
            **self._machine,
            "devices": self.devices,
            "calls": self.given.calls,
            "graph": self.given.graph,
        }
