"""For every test: no process, name in /dev/shm or communicator may be left when it ends, and time
limits hold on a busy machine."""

from __future__ import annotations

import mmap
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from patience import factor, patience

PATIENCE_S = 2.0
# multiprocessing keeps these two for the life of the interpreter; no test started them itself.
STANDING = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver")
# How orphans are known: a forked one has this mapping, one that ran exec has this variable.
RUN = f"pytest-run-{uuid.uuid4().hex}"
MARKS = []


def pytest_configure() -> None:
    """Marks this process and the processes that it starts, and measures how slow the machine is."""
    factor()
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell starts what ends in &
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # No name of a library's, which benchmarks keep from their programs.
    os.environ["PYTEST_RUN_ID"] = RUN
    descriptor = os.memfd_create(RUN)
    os.truncate(descriptor, mmap.PAGESIZE)
    MARKS.append(mmap.mmap(descriptor, mmap.PAGESIZE))
    os.close(descriptor)


def pytest_report_header() -> str:
    """What time limits are multiplied with."""
    return f"time limits: {factor():g} times those of a quiet machine"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Multiplies the time limit of each test, unless the command line has one, or pytest-timeout
    is not there."""
    if getattr(config.option, "timeout", 0) is not None:
        return
    for item in items:
        marker = item.get_closest_marker("timeout")
        seconds = float(marker.args[0] if marker else config.getini("timeout") or 0)
        item.add_marker(pytest.mark.timeout(patience(seconds)), append=False)


def pytest_collection_finish() -> None:
    """Multiplies what run_ranks() waits where a test does not say it."""
    run = sys.modules.get("collops.testing.run")
    if run is not None:
        run.GRACE_S = patience(run.GRACE_S)
        run.run_ranks.__kwdefaults__["timeout"] = patience(60.0)


def all_pids() -> set[int]:
    """Every process there is; a listing alone, for it is made twice in each of many tests."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def parent_of(pid: int) -> int | None:
    """The parent of a process, or nothing if it has ended (a zombie has)."""
    fields = read_process(pid, "stat").decode(errors="replace").rpartition(")")[2].split()
    return None if not fields or fields[0] in "ZX" else int(fields[1])


def read_process(pid: int, name: str) -> bytes:
    """A file of /proc, or nothing once the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def command_line(pid: int) -> str:
    """The words of a process."""
    return read_process(pid, "cmdline").replace(b"\0", b" ").decode().strip()


def is_ours(pid: int, parent: int) -> bool:
    """Whether this run started the process, directly or not, and may not leave it."""
    if parent == os.getpid():
        return not any(name in read_process(pid, "cmdline") for name in STANDING)
    return any(RUN.encode() in read_process(pid, name) for name in ("environ", "maps"))


def new_processes(before: set[int]) -> list[int]:
    """The processes of this run that live now and did not before."""
    found = []
    for pid in sorted(all_pids() - before):
        parent = parent_of(pid)
        if parent is not None and is_ours(pid, parent):
            found.append(pid)
    return found


def shm_names() -> set[str]:
    """The names in /dev/shm."""
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def is_in_use_elsewhere(name: str) -> bool:
    """Whether a process that is not ours has this shared memory open: another program's name."""
    path = f"/dev/shm/{name}"
    for pid in all_pids():
        parent = parent_of(pid)
        if parent is None or pid == os.getpid() or is_ours(pid, parent):
            continue
        try:
            files = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        if path in files or path.encode() in read_process(pid, "maps"):
            return True
    return False


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fails the test that left something, and removes it, so that the next test starts clean."""
    processes_before, names_before = all_pids(), shm_names()
    yield
    deadline = time.monotonic() + patience(PATIENCE_S)
    while True:
        processes, names = new_processes(processes_before), shm_names() - names_before
        if not (processes or names) or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    names = {name for name in names if not is_in_use_elsewhere(name)}
    left = [f"process {pid} ({command_line(pid)})" for pid in processes]
    left += [f"/dev/shm/{name}" for name in sorted(names)]
    for pid in processes:
        os.kill(pid, signal.SIGKILL)
    for name in names:
        Path(f"/dev/shm/{name}").unlink(missing_ok=True)
    assert not left, f"the test left behind: {', '.join(left)}"


@pytest.fixture(autouse=True)
def no_communicator_left() -> Iterator[None]:
    """Closes what the test process itself made; its next test may use the same domain."""
    yield
    core = sys.modules.get("collops._core")
    if core is not None:
        core.close_all("the test has ended")
