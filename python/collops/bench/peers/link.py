"""What the link between hosts carries by itself: exchanged blocks, ucx_perftest and iperf3."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from collops.bench.hosts import Hosts, own_device
from collops.bench.measure import Maker, Variant
from collops.launch.programs import Programs

# What loads the link between hosts with bytes of its own. LATENCY is the time of one message.
EXCHANGE, ONE_WAY, LATENCY, IPERF = LINK = ("exchange", "ucx_tag_bw", "ucx_tag_lat", "iperf3")
_LIMIT_S = 30.0
_LOOK_S = 0.01
_TRIES = 3
_ROUND_BYTES = 32 << 20
_MOST_MESSAGES = 500
_LISTENS = "0A"  # a state in /proc/net/tcp


@dataclass(frozen=True)
class LinkProgram:
    """A program of which one copy serves and another one, on another host, calls it."""

    serve: Callable[[str, int], list[str]]  # the server's words, from its address and port
    call: Callable[[str, int], list[str]]  # the client's words, from the same
    environment: Mapping[str, str]  # of both
    seconds: Callable[[str], float]  # of one message, from what the client prints


def ucx_perftest(test: str, size: int) -> LinkProgram | str:
    """The program of PyPI's libucx for a test and a message size, or why there is none."""
    spec = importlib.util.find_spec("libucx")
    folder = Path((spec.submodule_search_locations or [""])[0]) if spec else Path()
    program = folder / "bin" / "ucx_perftest"
    if spec is None or not os.access(program, os.X_OK):
        return "ucx_perftest is not installed (pip install libucx-cu13)"
    environment = {"LD_LIBRARY_PATH": str(folder / "lib"), "UCX_MEM_EVENTS": "n"}
    if "UCX_TLS" not in os.environ:
        environment["UCX_TLS"] = "tcp"
    device = own_device()
    if device and "UCX_NET_DEVICES" not in os.environ:
        environment["UCX_NET_DEVICES"] = device
    messages = max(5, min(_MOST_MESSAGES, _ROUND_BYTES // size))
    words = ["-t", test, "-s", str(size), "-n", str(messages), "-w", str(messages // 10 + 2), "-f"]
    column = 0 if test == "tag_lat" else 1
    return LinkProgram(
        serve=lambda _, port: [str(program), "-p", str(port), *words],
        call=lambda host, port: [str(program), host, "-p", str(port), *words],
        environment=environment,
        seconds=lambda text: perftest_seconds(text, column),
    )


def perftest_seconds(text: str, column: int) -> float:
    """The median (column 0) or the mean (1) of ucx_perftest's last line, in seconds a message.

    The mean is that of the whole run: the line's "average" counts its last second alone.
    """
    rows = [line.split() for line in text.splitlines()]
    numbers = [row[-8:] for row in rows if len(row) >= 8 and _are_numbers(row[-8:])]
    if not numbers:
        raise RuntimeError(f"ucx_perftest printed no result: {text.strip()[-200:]!r}")
    return float(numbers[-1][1 + 2 * column]) * 1e-6


def _are_numbers(words: Sequence[str]) -> bool:
    return all(word.replace(".", "", 1).isdecimal() for word in words)


def iperf3(size: int) -> LinkProgram | str:
    """iperf3 with one stream in one direction, or why there is none."""
    program = shutil.which("iperf3")
    if program is None:
        return "iperf3 is not installed"
    total = max(_ROUND_BYTES, size)
    return LinkProgram(
        serve=lambda host, port: [program, "-s", "-1", "-B", host, "-p", str(port)],
        call=lambda host, port: [program, "-c", host, "-p", str(port), "-n", str(total), "-J"],
        environment={},
        seconds=lambda text: iperf_seconds(text, size),
    )


def iperf_seconds(text: str, size: int) -> float:
    """The seconds of `size` bytes at the rate that iperf3's receiver measured."""
    rate = float(json.loads(text)["end"]["sum_received"]["bits_per_second"]) / 8
    return size / rate


@dataclass(frozen=True)
class Link:
    """The link between rank 0's host and the first other one; every rank calls seconds()."""

    work: Any  # a communicator of all ranks
    hosts: Hosts
    cores: frozenset[int]  # on which the programs may run

    def seconds(self, program: LinkProgram) -> float:
        """The seconds of one message, on the rank that calls the server; 0 on the others.

        Raises:
            RuntimeError: a program failed three times; on every rank.
        """
        # Another process may take the free port before the server does.
        for _ in range(_TRIES - 1):
            with suppress(RuntimeError):
                return self._try(program)
        return self._try(program)

    def _try(self, program: LinkProgram) -> float:
        rank, caller = self.work.rank, self.hosts.ranks(1)[0]
        host = os.environ.get("MASTER_ADDR", "")
        port, found, problem = 0, 0.0, ""
        with ExitStack() as server:
            try:
                if rank == 0:
                    free, said = _free_port(host), server.enter_context(tempfile.TemporaryFile("w"))
                    started = self._start(program.serve(host, free), program, said)
                    _await_listener(server.enter_context(started), free)
                    port = free
            except (OSError, RuntimeError) as error:
                problem = str(error)
            port = int(self._told(float(port), 0))
            try:
                if rank == caller and port:
                    found = program.seconds(self._run(program.call(host, port), program))
            except (OSError, RuntimeError, ArithmeticError, LookupError, ValueError) as error:
                found, problem = math.nan, str(error)
            if port == 0 or math.isnan(self._told(found, caller)):
                raise RuntimeError(problem or "it failed on another rank")
        return found

    def _told(self, value: float, by: int) -> float:
        """A number of one rank."""
        return float(self.work.all_gatherv(np.array([value]), [1] * self.work.size)[by])

    def _run(self, words: list[str], program: LinkProgram) -> str:
        with (
            tempfile.TemporaryFile("w+", errors="replace") as output,
            self._start(words, program, output) as client,
        ):
            [status] = client.wait(_LIMIT_S)
            output.seek(0)
            text = output.read()
            if status is None:
                raise RuntimeError(f"{words[0]} did not end in {_LIMIT_S:g} s")
        if status != 0:
            said = (text.strip().splitlines() or ["-"])[-1]
            raise RuntimeError(f"{words[0]} ended with status {status}: {said}")
        return text

    def _start(self, words: list[str], program: LinkProgram, output: IO[str]) -> Programs:
        pinned = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.cores or pinned)  # which the program inherits
        try:
            return Programs([(words, {**os.environ, **program.environment})], output)
        finally:
            os.sched_setaffinity(0, pinned)


def _free_port(host: str) -> int:
    [(family, *_, address), *_] = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.bind(address)
        port: int = probe.getsockname()[1]
        return port


def _await_listener(server: Programs, port: int) -> None:
    """Waits until a socket of this network listens on the port."""
    deadline = time.monotonic() + _LIMIT_S
    while not _is_listened(port):
        [status] = server.wait(0.0)
        if status is not None:
            raise RuntimeError(f"the server ended with status {status}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the server did not listen in {_LIMIT_S:g} s")
        time.sleep(_LOOK_S)


def _is_listened(port: int) -> bool:
    for name in ("tcp", "tcp6"):
        path = Path("/proc/net", name)
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            words = line.split()
            if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                return True
    return False


def link_variants(own: Any, block_bytes: int) -> Iterator[tuple[str, Maker]]:
    """The variants that several hosts have beside a collective, for blocks of so many bytes."""
    if own.hosts.count == 2:
        yield EXCHANGE, partial(_exchange, own, block_bytes)
    if own.hosts.count > 1:
        yield from _programs(own, max(1, block_bytes))


def _exchange(own: Any, block_bytes: int) -> Variant:
    """A block to the rank with the same number on the other host, and one from it."""
    rank, host = own.work.rank, own.hosts.of_rank[own.work.rank]
    here, there = own.hosts.ranks(host), own.hosts.ranks(1 - host)
    index = here.index(rank)
    length = block_bytes // own.element.bits.itemsize
    sizes = [0] * own.work.size
    if index < len(there):
        sizes[there[index]] = length
    sent, got = (own.element.matrix(sum(sizes), 1) for _ in range(2))
    own.element.fill(sent, (own.seed, rank), 2 / 3)
    given, taken = own.element.numbers(sent), own.element.numbers(got)
    call = partial(own.connect("ucx").all_to_allv, given, sizes, sizes, out=taken)
    moved = 2 * min(len(here), len(there)) * length * sent.itemsize
    label = "exchange with the other host (all_to_allv)"
    return Variant(EXCHANGE, label, [("move", call)], sent, moved_bytes=moved)


def _programs(own: Any, size: int) -> Iterator[tuple[str, Maker]]:
    link = Link(own.work, own.hosts, own.peers.cores)
    programs: list[tuple[str, str, str, LinkProgram | str]] = [
        ("ucx_perftest", ONE_WAY, "ucx_perftest tag_bw, one way", ucx_perftest("tag_bw", size)),
        ("ucx_perftest", LATENCY, "ucx_perftest tag_lat, one way", ucx_perftest("tag_lat", size)),
        ("iperf3", IPERF, "iperf3, one stream, one way", iperf3(size)),
    ]
    for peer, key, label, program in programs:
        if peer not in own.peers.wanted:
            continue
        missing = "" if isinstance(program, LinkProgram) else program
        # Some ranks may have the program and others not.
        if own.most(float(bool(missing))) or not isinstance(program, LinkProgram):
            note = f"no column {key}: {missing or 'not installed on another host'}"
            if own.peers.is_new(note):
                own.notes.append(note)
        else:
            yield key, partial(_by_program, link, key, label, program, size)


def _by_program(link: Link, key: str, label: str, program: LinkProgram, size: int) -> Variant:
    measure = partial(link.seconds, program)
    return Variant(key, label, [], moved_bytes=size, measure=measure)
