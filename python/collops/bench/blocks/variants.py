"""The variants that every benchmark of blocks has: windows, an exchange, and the link alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import collops
from collops.bench.blocks.points import BlockPoint
from collops.bench.blocks.report import EXCHANGE, LATENCY, ONE_WAY, WINDOW
from collops.bench.elements import Bits
from collops.bench.groups import Group
from collops.bench.peers.link_programs import Link, LinkProgram, iperf3, ucx_perftest
from collops.bench.variant import Maker, Run, Step, Variant, Variants
from collops.core import core

Counts = np.ndarray[Any, np.dtype[np.int64]]
_ROUND_BYTES = 4 << 20
_MOST_CALLS = 50
_UCX = "ucx"


class BlockVariants(Variants):
    """Makes the variants of one point; an operator's own class has its calls."""

    point: BlockPoint
    name: str  # the operator's, as the tables say it
    param: Callable[..., Any]  # its struct

    def __post_init__(self) -> None:
        super().__post_init__()
        ranks, rank = tuple(range(self.work.size)), self.work.rank
        self.group = Group(ranks, rank, self.point.counts)
        self.moved_bytes = self.point.total_bytes
        self.calls = max(1, min(_MOST_CALLS, _ROUND_BYTES // self.moved_bytes))
        self.backend = "shm" if self.hosts.count == 1 else _UCX
        self.facts = {
            "placement": self.hosts.text(),
            "backend": self.backend,
            "one_clock": self.hosts.one_clock,
            "calls": self.calls,
        }

    @abstractmethod
    def counts_of(self, rank: int) -> list[Counts]:
        """The operator's inputs between x and y, on a rank."""

    @abstractmethod
    def x_rows(self, rank: int) -> int:
        """Elements of a rank's x."""

    @abstractmethod
    def result_rows(self) -> int:
        """Elements of this rank's result."""

    @abstractmethod
    def gloo_calls(self) -> Iterator[tuple[str, str, Any]]:
        """Key, label and function of each variant of gloo; x and result in, steps out."""

    @abstractmethod
    def mpi_calls(self) -> Iterator[tuple[str, str, Any]]:
        """The same of MPI."""

    def own(self, key: str) -> Variant:
        """The operator, planned but not yet run."""
        return self._operator(key, self.name, self.backend, window=False)

    def others(self) -> Iterator[tuple[str, Maker]]:
        """The name of each other variant, and the function that makes it."""
        if self.hosts.count == 1:
            label = f"{self.name}, x in a window"
            yield WINDOW, partial(self._operator, WINDOW, label, "shm", True)
            if not {name: reason for name, reason, _, _ in core().backends()}[_UCX]:
                label = f"{self.name}, backend ucx"
                yield _UCX, partial(self._operator, _UCX, label, _UCX, False)
        if self.peers.mpi is not None:
            for key, label, steps in self.mpi_calls():
                yield key, partial(self._by_steps, key, label, steps, False)
        if self.peers.gloo is not None:
            for key, label, steps in self.gloo_calls():
                yield key, partial(self._by_steps, key, label, steps, True)
        if self.hosts.count == 2:
            yield EXCHANGE, self._exchange
        if self.hosts.count > 1:
            yield from self._of_link()

    def filled_x(self, comm: Any = None) -> Bits:
        """This rank's x, equal for every variant; in a window if `comm` is given."""
        rows = self.x_rows(self.work.rank)
        bits = self.element.bits
        x = comm.empty((rows, 1), bits) if comm else self.element.matrix(rows, 1)
        self.element.fill(x, (self.seed, self.work.rank), 2 / 3)
        return x

    def _operator(self, key: str, label: str, backend: str, window: bool) -> Variant:
        comm = self.connect(backend)
        x, result = self.filled_x(comm if window else None), self._own_result()
        step = ("move", self._planned(comm, backend, x, result))
        return Variant(key, label, [step], x, result, calls=self.calls)

    def _planned(self, comm: Any, backend: str, x: Bits, result: Bits) -> Run:
        """A planned call of the operator."""
        param = type(self).param(
            rank=comm.rank, rank_size=comm.size, backend=backend, hccl_comm=comm
        )
        numbers = self.element.numbers
        length = np.empty(result.shape[0], np.float16)
        ins = [numbers(x), *self.counts_of(comm.rank), length]
        operation, outs = collops.Operation(param), [numbers(result)]
        scratch = np.empty(operation.get_workspace_size(ins, outs), np.uint8)
        return lambda: operation.execute(ins, outs, scratch)

    def _own_result(self) -> Bits:
        return self.element.poisoned(self.result_rows(), 1)

    def _by_steps(self, key: str, label: str, steps: Any, unpinned: bool) -> Variant:
        x, result = self.filled_x(), self._own_result()
        made: list[Step] = steps(x, result)
        cores = self.peers.cores if unpinned else frozenset()
        return Variant(key, label, made, x, result, calls=self.calls, cores=cores)

    def _exchange(self) -> Variant:
        """A block to the rank with the same number on the other host, and one from it."""
        comm, host = self.connect(self.backend), self.hosts.of_rank[self.work.rank]
        here, there = self.hosts.ranks(host), self.hosts.ranks(1 - host)
        index = here.index(self.work.rank)
        length = self.point.size // self.element.bits.itemsize
        sizes = [0] * self.work.size
        if index < len(there):
            sizes[there[index]] = length
        sent, got = (self.element.matrix(sum(sizes), 1) for _ in range(2))
        self.element.fill(sent, (self.seed, self.work.rank), 2 / 3)
        numbers = self.element.numbers(sent), self.element.numbers(got)
        call = partial(comm.all_to_allv, numbers[0], sizes, sizes, out=numbers[1])
        moved = 2 * min(len(here), len(there)) * length * sent.itemsize
        label = "exchange with the other host (all_to_allv)"
        variant = Variant(EXCHANGE, label, [("move", call)], sent, calls=self.calls)
        variant.moved_bytes = moved
        return variant

    def _of_link(self) -> Iterator[tuple[str, Maker]]:
        size = self.point.size
        link = Link(self.work, self.hosts, self.peers.cores)
        programs: list[tuple[str, str, str, LinkProgram | str]] = [
            ("ucx_perftest", ONE_WAY, "ucx_perftest tag_bw, one way", ucx_perftest("tag_bw", size)),
            (
                "ucx_perftest",
                LATENCY,
                "ucx_perftest tag_lat, one way",
                ucx_perftest("tag_lat", size),
            ),
            ("iperf3", "iperf3", "iperf3, one stream, one way", iperf3(size)),
        ]
        for peer, key, label, program in programs:
            if peer in self.peers.wanted:
                missing = "" if isinstance(program, LinkProgram) else program
                # Some ranks may have the program and others not.
                if self.most(float(bool(missing))) or not isinstance(program, LinkProgram):
                    note = f"no column {key}: {missing or 'not installed on another host'}"
                    if self.peers.is_new(note):
                        self.notes.append(note)
                else:
                    yield key, partial(self._by_program, link, key, label, program)

    def _by_program(self, link: Link, key: str, label: str, program: LinkProgram) -> Variant:
        measure = partial(link.seconds, program)
        return Variant(key, label, [], moved_bytes=self.point.size, measure=measure)


def tensor_of(own: BlockVariants, bits: Bits) -> Any:
    """A flat torch tensor on the same memory."""
    return own.element.tensor(bits).view(-1)


def whole(own: BlockVariants) -> Counts:
    """The elements of each rank's block, as operators take them."""
    return np.array(own.point.counts, np.int64)


def starts(own: BlockVariants) -> Counts:
    """Where each rank's block begins, as operators take it."""
    return np.array(own.group.displs(1), np.int64)
