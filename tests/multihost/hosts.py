"""Hosts on one machine: namespaces that share nothing but a wire.

A host has its own network, mounts (its own /dev/shm) and host name. It lives as long as its keeper,
a process that ends with this one, so that nothing stays behind however a test ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from patience import patience

DEVICE = "wire0"
NOBODY = "02:00:00:00:00:99"  # a hardware address that no host has
# Makes the host's own /dev/shm, /sys and name, says that it is ready, and waits for its end.
KEEPER = (
    "set -e; mount --make-rprivate /; mount -t tmpfs tmpfs /dev/shm; mount -t sysfs sysfs /sys;"
    ' hostname "$1"; ip link set lo up; echo ready; exec cat'
)
LIMIT_S = patience(20.0)


class Unavailable(Exception):
    """This machine or user cannot have such hosts; the text says why."""


def command(*words: str) -> str:
    """What a command printed; an error with its message if it failed."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@dataclass
class Host:
    """One host; `address` is its end of the wire."""

    name: str
    address: str
    keeper: subprocess.Popen[str]
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def enter(self, *words: str) -> list[str]:
        """The command that runs `words` on this host, as the process that it starts itself."""
        folder = f"/proc/{self.keeper.pid}/ns"
        spaces = [f"--net={folder}/net", f"--mount={folder}/mnt", f"--uts={folder}/uts"]
        return ["nsenter", *spaces, "--", *words]

    def start(
        self, words: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Starts a program, with its input, output and errors as pipes."""
        process = subprocess.Popen(
            self.enter(*words),
            env={**os.environ, **(env or {})},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.running.append(process)
        return process

    def run(self, *words: str) -> str:
        """What a program printed on this host; an error if it failed."""
        return command(*self.enter(*words))

    def kill(self) -> None:
        """Ends what was started here, at once, as a power cut does."""
        for process in self.running:
            process.kill()
        for process in self.running:
            process.wait(timeout=LIMIT_S)

    def sent_bytes(self) -> int:
        """Bytes that have left by the wire, headers included."""
        return self._counters()["tx"]["bytes"]

    def received_bytes(self) -> int:
        """Bytes that have come by the wire, headers included."""
        return self._counters()["rx"]["bytes"]

    def sent_frames(self) -> int:
        """Ethernet frames that have left by the wire."""
        return self._counters()["tx"]["packets"]

    def _counters(self) -> dict[str, dict[str, int]]:
        [link] = json.loads(self.run("ip", "-s", "-j", "link", "show", "dev", DEVICE))
        return dict(link["stats64"])

    def wait_for_link(self) -> None:
        """Until the kernel says that the wire works, which takes up to a second."""
        deadline = time.monotonic() + LIMIT_S
        while json.loads(self.run("ip", "-j", "link", "show", DEVICE))[0]["operstate"] != "UP":
            if time.monotonic() > deadline:
                raise RuntimeError(f"{DEVICE} of {self.name} does not come up")
            time.sleep(0.01)

    def cut(self) -> None:
        """Takes the link down: both ends see that the cable is out."""
        self.run("ip", "link", "set", DEVICE, "down")

    def lose_frames_to(self, other: Host) -> None:
        """Frames to the other host vanish, while the link stays up: half of a silent hole."""
        where = [other.address, "lladdr", NOBODY, "dev", DEVICE, "nud", "permanent"]
        self.run("ip", "neigh", "replace", *where)

    def slow_down(self, rate: str) -> None:
        """Limits what leaves this host, e.g. to "100mbit"."""
        limit = ["rate", rate, "burst", "128kb", "latency", "100ms"]
        self.run("tc", "qdisc", "replace", "dev", DEVICE, "root", "tbf", *limit)

    def close(self) -> None:
        """Ends what runs here, and the host."""
        self.kill()
        self.keeper.kill()
        self.keeper.communicate(timeout=LIMIT_S)
        for process in self.running:
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()


def silent_hole(one: Host, other: Host) -> None:
    """Nothing passes between the two hosts any more, and neither is told."""
    one.lose_frames_to(other)
    other.lose_frames_to(one)


def new_host(name: str, address: str) -> Host:
    """A host without a wire."""
    keeper = subprocess.Popen(
        ["unshare", "--net", "--mount", "--uts", "sh", "-c", KEEPER, "sh", name],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert keeper.stdout is not None
    if keeper.stdout.readline() != "ready\n":
        keeper.kill()
        raise Unavailable(f"namespaces are not allowed here: {keeper.communicate()[1].strip()}")
    return Host(name, address, keeper)


def connect(hosts: list[Host], switch: Host | None) -> None:
    """Two hosts by a cable; more by cables to a switch, which is a host itself."""
    if switch is None:
        ends = [(hosts[0], DEVICE, hosts[1], DEVICE)]
    else:
        ends = [(host, DEVICE, switch, f"port{i}") for i, host in enumerate(hosts)]
        switch.run("ip", "link", "add", "switch0", "type", "bridge")
        switch.run("ip", "link", "set", "switch0", "up")
    for one, device, other, port in ends:
        peer = ["peer", "name", port, "netns", str(other.keeper.pid)]
        near = ["ip", "link", "add", device, "netns", str(one.keeper.pid)]
        command(*near, "type", "veth", *peer)
        if switch is not None:
            switch.run("ip", "link", "set", port, "master", "switch0", "up")
    for host in hosts:
        host.run("ip", "address", "add", f"{host.address}/24", "dev", DEVICE)
        host.run("ip", "link", "set", DEVICE, "up")
    for host in hosts:
        host.wait_for_link()


@contextlib.contextmanager
def network(size: int) -> Iterator[list[Host]]:
    """So many hosts on one wire, 10.77.0.1 and on; raises Unavailable where they cannot be."""
    if os.geteuid() != 0:
        raise Unavailable("hosts made of network namespaces need root")
    with contextlib.ExitStack() as stack:

        def add(name: str, address: str) -> Host:
            host = new_host(name, address)
            stack.callback(host.close)
            return host

        try:
            hosts = [add(f"node{i}", f"10.77.0.{i + 1}") for i in range(size)]
            connect(hosts, add("switch", "") if size > 2 else None)
        except (OSError, RuntimeError) as error:
            raise Unavailable(f"no network between namespaces here: {error}") from error
        yield hosts
