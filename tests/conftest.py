"""For every test: no process and no name in /dev/shm may be left when it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 2.0
# multiprocessing keeps these two for the life of the interpreter; no test started them itself.
STANDING = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def pytest_configure() -> None:
    """Makes orphans of killed ranks children of this process, where they can be found."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def living_processes() -> dict[int, tuple[int, str]]:
    """Parent and start time of every process that is no zombie."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue
        fields = stat.rpartition(")")[2].split()
        if fields[0] not in "ZX":
            found[int(folder.name)] = (int(fields[1]), fields[19])
    return found


def command_line(pid: int) -> str:
    """The words of a process, or nothing once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def descendants() -> set[tuple[int, str]]:
    """Pid and start time of what this process started, except what stands for its whole life."""
    processes = living_processes()
    me = os.getpid()

    def is_ours(pid: int) -> bool:
        while pid in processes and pid != me:
            pid = processes[pid][0]
        return pid == me

    def is_standing(pid: int) -> bool:
        return processes[pid][0] == me and any(name in command_line(pid) for name in STANDING)

    return {
        (pid, start)
        for pid, (_, start) in processes.items()
        if pid != me and is_ours(pid) and not is_standing(pid)
    }


def shm_names() -> set[str]:
    """The names in /dev/shm."""
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def is_in_use_elsewhere(name: str) -> bool:
    """Whether a process that is not ours has this shared memory open: another program's name."""
    ours = {pid for pid, _ in descendants()} | {os.getpid()}
    path = f"/dev/shm/{name}"
    for pid in living_processes().keys() - ours:
        try:
            files = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
            if path in files or path in Path(f"/proc/{pid}/maps").read_text():
                return True
        except OSError:
            continue
    return False


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fails the test that left something, and removes it, so that the next test starts clean."""
    processes_before, names_before = descendants(), shm_names()
    yield
    deadline = time.monotonic() + PATIENCE_S
    while True:
        processes = descendants() - processes_before
        names = shm_names() - names_before
        if not (processes or names) or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    names = {name for name in names if not is_in_use_elsewhere(name)}
    left = [f"process {pid} ({command_line(pid)})" for pid, _ in sorted(processes)]
    left += [f"/dev/shm/{name}" for name in sorted(names)]
    for pid, _ in processes:
        os.kill(pid, signal.SIGKILL)
    for name in names:
        Path(f"/dev/shm/{name}").unlink(missing_ok=True)
    assert not left, f"the test left behind: {', '.join(left)}"
