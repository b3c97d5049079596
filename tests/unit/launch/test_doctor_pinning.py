"""`collops doctor` says which ranks of this host lack cores of their own; the hosts are made up."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from collops.cli.pinning import HOW, pinning


def host(folder: Path, nodes: int, cores: int, threads: int) -> None:
    """A host as Linux describes it: thread t of core c is number c + t * nodes * cores."""
    all_cores = nodes * cores
    (folder / "cpu").mkdir(parents=True)
    (folder / "cpu/online").write_text(f"0-{all_cores * threads - 1}\n")
    for core in range(all_cores):
        numbers = [core + t * all_cores for t in range(threads)]
        for cpu in numbers:
            topology = folder / f"cpu/cpu{cpu}/topology"
            topology.mkdir(parents=True)
            # Older kernels have the other name.
            name = "core_cpus_list" if cpu % 2 else "thread_siblings_list"
            (topology / name).write_text(",".join(map(str, numbers)) + "\n")
    for node in range(nodes):
        (folder / f"node/node{node}").mkdir(parents=True)
        first = [node * cores + t * all_cores for t in range(threads)]
        ranges = [f"{begin}-{begin + cores - 1}" for begin in first]
        (folder / f"node/node{node}/cpulist").write_text(",".join(ranges) + "\n")


def processes(
    folder: Path, allowed: Mapping[int, str], children: Mapping[int, int] | None = None
) -> None:
    """Ranks, by pid, a process that is none, and children of fork() by pid and parent."""
    for pid, cpus in {**allowed, 99: "0", **dict.fromkeys(children or {}, "0")}.items():
        (folder / str(pid)).mkdir(parents=True)
        memory = "" if pid == 99 else "7f0-7f1 rw-s 00:01 5 /memfd:collops (deleted)\n"
        (folder / str(pid) / "maps").write_text("400-500 r-xp 00:01 7 /bin/python\n" + memory)
        (folder / str(pid) / "status").write_text(
            f"Name:\tpython\nPPid:\t{(children or {}).get(pid, 1000)}\nCpus_allowed_list:\t{cpus}\n"
        )
    (folder / "self").mkdir()


TWO_NODES = (2, 4, 2)  # cores 0-3 and 4-7; the second threads are 8-11 and 12-15
NONE = ["none: each rank has cores of its own"]


@pytest.mark.parametrize(
    ("shape", "allowed", "said"),
    [
        # Each on a core; on both threads of one; on cores of one node; free cores are nobody's.
        (TWO_NODES, {1: "0", 2: "1"}, NONE),
        (TWO_NODES, {1: "0,8", 2: "4,12"}, NONE),
        (TWO_NODES, {1: "0-3,8-11", 2: "4-7,12-15"}, NONE),
        (TWO_NODES, {1: "0-3", 2: "0-3"}, [f"pids 1, 2 may run on any core: {HOW}"]),
        (
            TWO_NODES,
            {1: "0-15", 2: "0-15", 3: "0"},
            [
                f"pids 1, 2 may run on any core: {HOW}",
                "pids 1, 2 may run on NUMA nodes 0-1: memory stays on the node on which a rank "
                "began; bind each rank within a node",
            ],
        ),
        (
            TWO_NODES,
            {1: "3-4", 2: "0-1"},
            [
                "pid 1 may run on NUMA nodes 0-1: memory stays on the node on which a rank began; "
                "bind each rank within a node"
            ],
        ),
        (TWO_NODES, {1: "0", 2: "0", 3: "5"}, ["3 ranks share 2 of 8 cores, so they wait for"]),
        (TWO_NODES, {1: "0", 2: "0", 3: "4-5"}, [f"pids 1, 2 are bound to core 0: {HOW}"]),
        (
            TWO_NODES,
            {1: "1", 2: "9", 3: "2-3"},
            [
                "pids 1, 2 use hardware threads of core 1, while cores 0,4-7 have no rank: bind "
                "one rank to a core"
            ],
        ),
        ((1, 2, 1), {1: "0-1", 2: "0-1", 3: "0-1"}, ["3 ranks share 2 of 2 cores, so they wait"]),
        ((1, 2, 1), {1: "0", 2: "1"}, NONE),
        (
            (1, 16, 1),
            dict.fromkeys(range(1, 11), "0-15"),
            [f"pids 1, 2, 3, 4, 5, 6, 7, 8 and 2 others may run on any core: {HOW}"],
        ),
    ],
)
def test_advice(
    tmp_path: Path, shape: tuple[int, int, int], allowed: dict[int, str], said: list[str]
) -> None:
    host(tmp_path / "sys", *shape)
    processes(tmp_path / "proc", allowed)
    rows = pinning(tmp_path / "sys", tmp_path / "proc")
    nodes, cores, threads = shape
    node_text = f"{nodes} NUMA node{'s' * (nodes > 1)}"
    all_cores = nodes * cores
    assert rows[0] == (
        "host",
        f"{all_cores} cores, {all_cores * threads} hardware threads, {node_text}",
    )
    assert rows[1] == ("ranks", f"{len(allowed)} processes have communicators")
    found = [text for name, text in rows[2:] if name == "advice"]
    assert len(found) == len(said)
    for text, want in zip(found, said, strict=True):
        assert text.startswith(want)


def test_children_of_fork_are_no_ranks(tmp_path: Path) -> None:
    host(tmp_path / "sys", 1, 2, 1)
    processes(tmp_path / "proc", {1: "0", 2: "1"}, children={3: 1, 4: 1, 5: 4})
    rows = pinning(tmp_path / "sys", tmp_path / "proc")
    assert ("ranks", "2 processes have communicators") in rows
    assert [text for name, text in rows if name == "advice"] == NONE


def test_without_a_job_and_without_a_host(tmp_path: Path) -> None:
    host(tmp_path / "sys", 1, 4, 1)
    (tmp_path / "proc").mkdir()
    rows = dict(pinning(tmp_path / "sys", tmp_path / "proc"))
    assert rows["ranks"] == "none run now: run collops doctor beside a job to have it checked"
    rows = dict(pinning(tmp_path / "nothing", tmp_path / "proc"))
    assert list(rows) == ["not known"]


def test_this_host() -> None:
    rows = dict(pinning())
    assert int(rows["host"].split()[2]) >= len(os.sched_getaffinity(0))
