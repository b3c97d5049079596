"""What the link between hosts carries by itself: blocks that are exchanged, and programs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from collops.bench.collectives.report import EXCHANGE, IPERF, LATENCY, ONE_WAY
from collops.bench.measure import Maker, Variant
from collops.bench.peers.link_programs import Link, LinkProgram, iperf3, ucx_perftest
from collops.bench.variant import Variants


def link_variants(own: Variants, block_bytes: int) -> Iterator[tuple[str, Maker]]:
    """The variants that several hosts have beside a collective, for blocks of so many bytes."""
    if own.hosts.count == 2:
        yield EXCHANGE, partial(_exchange, own, block_bytes)
    if own.hosts.count > 1:
        yield from _programs(own, max(1, block_bytes))


def _exchange(own: Variants, block_bytes: int) -> Variant:
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


def _programs(own: Variants, size: int) -> Iterator[tuple[str, Maker]]:
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
