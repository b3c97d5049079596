"""Two processes on two hosts exchange data through UCX; the wire carries little more than that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hosts import Host

# tools/multihost.py names the folder where it has built the C++ programs.
PROGRAMS = Path(os.environ.get("COLLOPS_TEST_PROGRAMS", ""))


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
            assert process.wait(timeout=20) == 0


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
