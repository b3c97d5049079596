"""What goes over the wire is little more than what is exchanged, and what `collops plan` says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collops.plan.prediction import ASSUMED, GATHER, REDUCE, Call, predict
from patience import patience
from tests.multihost.hosts import Host
from tests.multihost.jobs import RANKS, Job

# tools/multihost.py names the folder where it has built the C++ programs.
PROGRAMS = Path(os.environ.get("COLLOPS_TEST_PROGRAMS", ""))
LIMIT_S = patience(120.0)
FEW, MANY = 2, 22
# Headers of Ethernet, TCP and UCX, acknowledgements, and credits.
MOST_MORE = 1.05
KIB = 1 << 10


class Exchange:
    """The program ucx_exchange on two hosts, connected."""

    def __init__(self, hosts: list[Host], size: int, chunk: int, rounds: int) -> None:
        program = PROGRAMS / "ucx_exchange"
        self._processes = [
            host.start(
                [str(program), str(me), str(size), str(chunk), str(rounds)],
                env={"UCX_TLS": "tcp", "UCX_NET_DEVICES": "wire0"},
            )
            for me, host in enumerate(hosts)
        ]
        addresses = self.hear()
        self.say(*reversed(addresses))
        assert self.hear() == ["ready", "ready"]

    def hear(self) -> list[str]:
        """A line of each of the two."""
        lines = []
        for process in self._processes:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            if not line:
                error = process.stderr.read()
                if error.startswith("skipped: "):
                    pytest.skip(error.removeprefix("skipped: ").strip())
                raise AssertionError(error)
            lines.append(line.strip())
        return lines

    def say(self, *lines: str) -> None:
        """A line to each of the two."""
        for process, line in zip(self._processes, lines, strict=True):
            assert process.stdin is not None
            process.stdin.write(f"{line}\n")
            process.stdin.flush()

    def run(self) -> list[float]:
        """The seconds that each round took, on the slower side."""
        self.say("go", "go")
        one, other = ([float(word) for word in line.split()] for line in self.hear())
        return [max(pair) for pair in zip(one, other, strict=True)]

    def end(self) -> None:
        """Both close."""
        self.say("end", "end")
        for process in self._processes:
            assert process.wait(timeout=patience(20)) == 0


@pytest.mark.parametrize("chunk", [256 << 10, 512 << 10])
def test_the_wire_carries_the_payload_and_at_most_two_per_cent_more(
    two_hosts: list[Host], chunk: int
) -> None:
    size, rounds = 4 << 20, 20
    exchange = Exchange(two_hosts, size, chunk, rounds)
    before = [(host.sent_bytes(), host.received_bytes()) for host in two_hosts]
    exchange.run()
    for host, (sent, received) in zip(two_hosts, before, strict=True):
        payload = size * rounds
        assert payload < host.sent_bytes() - sent < 1.02 * payload
        assert payload < host.received_bytes() - received < 1.02 * payload
    exchange.end()


def sent(
    hosts: list[Host], placement: list[int], op: str, calls: int, sizes: list[int]
) -> list[int]:
    """Bytes that leave each host while so many calls are made."""
    before = [host.sent_bytes() for host in hosts]
    with Job(hosts, placement, str(RANKS / "planned.py"), op, str(calls), *map(str, sizes)) as job:
        for status, out, err in job.results(LIMIT_S):
            assert status == 0, out + err
    return [host.sent_bytes() - then for host, then in zip(hosts, before, strict=True)]


def check(hosts: list[Host], placement: list[int], op: str, sizes: list[int]) -> None:
    """First contact is in both jobs, so their difference is calls alone."""
    few, many = (sent(hosts, placement, op, calls, sizes) for calls in (FEW, MANY))
    call = Call(op, tuple(placement), tuple(size // 4 for size in sizes))
    found = predict(call, ASSUMED)
    for host, figures in enumerate(found.hosts):
        each = (many[host] - few[host]) / (MANY - FEW)
        # What a host acknowledges is some part of what it receives.
        most = MOST_MORE * figures["sent_bytes"] + 0.05 * figures["received_bytes"] + 4 * KIB
        assert figures["sent_bytes"] < each < most, (host, each, figures)


@pytest.mark.parametrize("op", [GATHER, REDUCE])
@pytest.mark.parametrize(
    ("placement", "sizes"),
    [
        ([0, 1], [900 * KIB, 100 * KIB]),
        ([0, 0, 1, 1], [300 * KIB, 0, 200 * KIB, 700 * KIB]),
        ([0, 1, 0, 1], [300 * KIB, 300 * KIB, 200 * KIB, 100 * KIB]),
        ([0, 1, 1, 1], [40 * KIB, 40 * KIB, 40 * KIB, 40 * KIB]),
    ],
)
def test_two_hosts(two_hosts: list[Host], placement: list[int], op: str, sizes: list[int]) -> None:
    check(two_hosts, placement, op, sizes)


@pytest.mark.parametrize("op", [GATHER, REDUCE])
def test_three_hosts(three_hosts: list[Host], op: str) -> None:
    check(three_hosts, [2, 0, 1, 1, 2], op, [400 * KIB, 100 * KIB, 0, 300 * KIB, 200 * KIB])
