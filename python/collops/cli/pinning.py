"""The part of ``collops doctor`` on the cores of the ranks that run on this host."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

# What the shared memory of a rank is called in its /proc/PID/maps.
_SEGMENT = "/memfd:collops"
HOW = (
    "bind each rank to cores of its own: mpirun --bind-to core, srun --cpu-bind=cores, "
    "torchrun --numa-binding, taskset, or os.sched_setaffinity before the first communicator"
)
Cpus = frozenset[int]


@dataclass(frozen=True)
class Topology:
    """The hardware threads of this host, by Linux's numbers: the core and NUMA node of each."""

    core_of: Mapping[int, int]  # a core is named by its first hardware thread
    node_of: Mapping[int, int]

    @classmethod
    def read(cls, system: Path) -> Topology:
        """From the folder /sys/devices/system, or one like it."""
        node_of = {
            cpu: int(folder.name.removeprefix("node"))
            for folder in sorted(system.glob("node/node[0-9]*"))
            for cpu in parse_list(_text(folder / "cpulist"))
        }
        online = parse_list(_text(system / "cpu/online"))
        core_of = {}
        for cpu in online:
            topology = system / f"cpu/cpu{cpu}/topology"
            # The second is its name before Linux 5.3.
            names = ("core_cpus_list", "thread_siblings_list")
            threads = next(filter(None, (parse_list(_text(topology / n)) for n in names)), ())
            core_of[cpu] = min(threads, default=cpu)
        return cls(core_of, {cpu: node_of.get(cpu, 0) for cpu in online})

    def cores(self, cpus: Iterable[int]) -> Cpus:
        """The cores of these hardware threads."""
        return frozenset(self.core_of[cpu] for cpu in cpus)

    def nodes(self, cpus: Iterable[int]) -> Cpus:
        """The NUMA nodes of these hardware threads."""
        return frozenset(self.node_of[cpu] for cpu in cpus)


def pinning(
    system: Path = Path("/sys/devices/system"), proc: Path = Path("/proc")
) -> list[tuple[str, str]]:
    """The rows of the part; other folders than Linux's are a test's."""
    topology = Topology.read(system)
    if not topology.core_of:
        return [("not known", f"{system}/cpu/online cannot be read")]
    everything = frozenset(topology.core_of)
    nodes = topology.nodes(everything)
    rows = [
        (
            "host",
            f"{len(topology.cores(everything))} cores, {len(everything)} hardware threads, "
            f"{len(nodes)} NUMA {'node' if len(nodes) == 1 else 'nodes'}",
        )
    ]
    ranks = {pid: cpus & everything for pid, cpus in running_ranks(proc).items()}
    ranks = {pid: cpus for pid, cpus in ranks.items() if cpus}
    if len(ranks) < 2:
        return [
            *rows,
            ("ranks", "none run now: run collops doctor beside a job to have it checked"),
        ]
    found = advice(topology, ranks)
    return [
        *rows,
        ("ranks", f"{len(ranks)} processes have communicators"),
        *(("advice", text) for text in found or ["none: each rank has cores of its own"]),
    ]


def advice(topology: Topology, ranks: Mapping[int, Cpus]) -> list[str]:
    """What is to be mended about the cores that these processes may use."""
    used = topology.cores(frozenset().union(*ranks.values()))
    if len(ranks) > len(used):
        return [
            f"{len(ranks)} ranks share {len(used)} of {len(topology.cores(topology.core_of))} "
            "cores, so they wait for each other's turn: start fewer, or give them more"
        ]
    # On one core there is nothing to bind, and cores that all may use are bound to none.
    free = [pid for pid, cpus in ranks.items() if len(used) > 1 and topology.cores(cpus) == used]
    found = [f"{_pids(free)} may run on any core: {HOW}"] if free else []
    wide = [pid for pid, cpus in ranks.items() if len(topology.nodes(cpus)) > 1]
    if wide:
        found.append(
            f"{_pids(wide)} may run on NUMA nodes {_list(topology.nodes(ranks[wide[0]]))}: memory "
            "stays on the node on which a rank began; bind each rank within a node"
        )
    return found + _crowded(topology, {p: c for p, c in ranks.items() if p not in free})


def _crowded(topology: Topology, bound: Mapping[int, Cpus]) -> list[str]:
    """Of ranks that are bound to the same cores, more than there are."""
    by_cores = defaultdict(list)
    for pid, cpus in bound.items():
        by_cores[topology.cores(cpus)].append(pid)
    taken = topology.cores(frozenset().union(*bound.values()))
    idle = topology.cores(topology.core_of) - taken
    found = []
    for cores, pids in by_cores.items():
        if len(pids) <= len(cores):
            continue
        where = f"core{'s' * (len(cores) > 1)} {_list(cores)}"
        if len(pids) > len(frozenset().union(*(bound[pid] for pid in pids))):
            found.append(f"{_pids(pids)} are bound to {where}: {HOW}")
        elif idle:
            found.append(
                f"{_pids(pids)} use hardware threads of {where}, while cores {_list(idle)} have no "
                "rank: bind one rank to a core"
            )
    return found


def running_ranks(proc: Path) -> dict[int, Cpus]:
    """The processes that have a communicator's shared memory, and the threads they may use.

    A child of fork() has its parent's memory, and is no rank.
    """
    found = {}
    parents = {}
    for folder in proc.glob("[0-9]*"):
        # The maps of other users' processes cannot be read.
        if _SEGMENT not in _text(folder / "maps"):
            continue
        for line in _text(folder / "status").splitlines():
            name, _, value = line.partition(":")
            if name == "Cpus_allowed_list":
                found[int(folder.name)] = frozenset(parse_list(value))
            elif name == "PPid":
                parents[int(folder.name)] = int(value)
    return {pid: cpus for pid, cpus in sorted(found.items()) if parents.get(pid) not in found}


def parse_list(text: str) -> list[int]:
    """The numbers of one of Linux's lists, such as 0-3,8."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _list(numbers: Iterable[int]) -> str:
    """As Linux writes it: the reverse of parse_list()."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def _pids(pids: Iterable[int]) -> str:
    """Of many processes the first."""
    most = 8
    pids = list(pids)
    more = f" and {len(pids) - most} others" if len(pids) > most else ""
    return f"{'pid' if len(pids) == 1 else 'pids'} {', '.join(map(str, pids[:most]))}{more}"


def _text(path: Path) -> str:
    """A file's text; empty if it cannot be read, also because the process has ended."""
    try:
        return os.fsdecode(path.read_bytes())
    except OSError:
        return ""
