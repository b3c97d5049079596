"""For every test: no process, name in /dev/shm, listening socket or communicator may be left when
it ends, and time limits hold on a busy machine.

Other programs run beside the tests, so only what this run has made is looked at. It gets a /dev/shm
of its own (a mount namespace), in which every name is ours. Where the kernel allows none, a name is
ours if one of our processes was seen to have it open; names of unknown owners are listed and stay.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import signal
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from patience import factor, patience

PATIENCE_S = 2.0
# multiprocessing keeps these two for the life of the interpreter; no test started them itself.
STANDING = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver")
# How orphans are known: a forked one has this mapping, one that ran exec has this variable.
RUN = f"pytest-run-{uuid.uuid4().hex}"
MARKS = []
# What tools/run_tests.py writes of the last whole run.
LAST = Path(__file__).parents[1] / "build" / "test-seconds.json"
SHM = Path("/dev/shm")
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x4000, 0x40000
CAPABILITIES_3, CAP_SYS_ADMIN = 0x20080522, 21
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 47, 2
IN_CREATE, IN_MOVED_TO = 0x100, 0x80
LISTENS = {"tcp": "0A", "tcp6": "0A", "unix": "00010000"}
# If it is set, tests share /dev/shm with the machine, as they do where namespaces are forbidden.
SHARES = "PYTEST_SHARES_SHM"


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
    SHARED.begin(private=SHARES not in os.environ and can_have_private_shm())


def pytest_report_header() -> list[str]:
    """What time limits are multiplied with, and whose /dev/shm is looked at."""
    whose = "of these tests alone" if SHARED.private else "shared with other programs"
    return [f"time limits: {factor():g} times those of a quiet machine", f"/dev/shm: {whose}"]


def pytest_sessionfinish() -> None:
    """Names those that nobody was seen to make: a warning, for they may be another program's."""
    left = sorted(SHARED.unknown & set(SHARED.names()))
    if left:
        warnings.warn(f"in /dev/shm, made meanwhile, not known whose: {left}", stacklevel=1)


def longest_first(items: list[pytest.Item]) -> None:
    """Orders files by how long they took last, so that side by side they end together."""
    if LAST.exists():
        took = json.loads(LAST.read_text()).get("files", {})
        rooms = {item: item.nodeid.partition(".py::")[0].replace("/", ".") for item in items}
        items.sort(key=lambda item: -took.get(rooms[item], 0.0))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Multiplies the time limit of each test, unless the command line has one, or pytest-timeout
    is not there."""
    if hasattr(config, "workerinput"):  # of pytest-xdist
        longest_first(items)
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


def has_open(pid: int, paths: Iterable[str]) -> set[str]:
    """Those of the files that a process has open or mapped."""
    try:
        files = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    except OSError:
        files = set()
    maps = read_process(pid, "maps").decode(errors="replace")
    return {path for path in paths if path in files or f" {path}\n" in maps}


def listening_sockets() -> dict[str, str]:
    """The sockets on which this process listens: what they are called, by inode."""
    ours = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            ours.add(os.readlink(f"/proc/self/fd/{entry}"))
        except FileNotFoundError:
            continue
    ours = {link[8:-1] for link in ours if link.startswith("socket:[")}
    found: dict[str, str] = {}
    for kind, listens in LISTENS.items() if ours else ():
        table = Path(f"/proc/net/{kind}")
        lines = table.read_text().splitlines()[1:] if table.exists() else []
        for words in map(str.split, lines):
            inode, state, name = (
                (words[6], words[3], " ".join(words[7:]))
                if kind == "unix"
                else (words[9], words[3], words[1])
            )
            if inode in ours and state == listens:
                found[inode] = f"{kind} {name}"
    return found


LIBC = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """A call of libc; OSError if it fails."""
    result: int = getattr(LIBC, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def enter_private_shm() -> None:
    """Gives this process, and those that it starts, a /dev/shm of their own."""
    try:
        call("unshare", CLONE_NEWNS)
    except PermissionError:  # not root: as oneself in a namespace of users
        uid, gid = os.geteuid(), os.getegid()
        call("unshare", CLONE_NEWUSER | CLONE_NEWNS)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        hand_on_mounting()
    call("mount", b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None)
    flags = ctypes.c_ulong(MS_NOSUID | MS_NODEV)
    call("mount", b"tmpfs", os.fsencode(SHM), b"tmpfs", flags, b"mode=1777")


def hand_on_mounting() -> None:
    """Lets pytest-xdist's processes mount too: they have threads, and cannot enter a new namespace
    of users."""
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice
    call("capget", header, sets)
    sets[2] |= 1 << CAP_SYS_ADMIN
    call("capset", header, sets)
    call("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0)


def can_have_private_shm() -> bool:
    """Tried by a child: half of the way into a namespace would be of no use."""
    child = os.fork()
    if child == 0:
        try:
            enter_private_shm()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class SharedMemory:
    """The names in /dev/shm, and which of them are ours."""

    def __init__(self) -> None:
        self.private = False
        self.unknown: set[str] = set()  # whose these are
        self._ours: set[str] = set()

    def begin(self, private: bool) -> None:
        """Makes /dev/shm private, or else looks who makes names there."""
        self.private = private
        if private:
            enter_private_shm()
        elif SHM.is_dir():
            events = call("inotify_init1", os.O_CLOEXEC)
            call("inotify_add_watch", events, os.fsencode(SHM), IN_CREATE | IN_MOVED_TO)
            threading.Thread(target=self._watch, args=[events], daemon=True).start()

    def names(self) -> list[str]:
        """All that there are."""
        return sorted(os.listdir(SHM)) if SHM.is_dir() else []

    def made_since(self, before: set[str]) -> list[str]:
        """Those of ours that are there now and were not before."""
        new = set(self.names()) - before
        if not self.private:
            if new:
                self._look_at(new)
            self.unknown |= new - self._ours
            new &= self._ours
        return sorted(new)

    def _watch(self, events: int) -> None:
        while os.read(events, 1 << 16):
            self._look_at(set(self.names()) - self._ours)

    def _look_at(self, names: set[str]) -> None:
        """Notes those that one of our processes has open."""
        paths = {str(SHM / name): name for name in names}
        for pid in all_pids():
            parent = parent_of(pid)
            if pid == os.getpid() or (parent is not None and is_ours(pid, parent)):
                self._ours |= {paths[path] for path in has_open(pid, paths)}


SHARED = SharedMemory()


@pytest.fixture
def shared_memory() -> SharedMemory:
    """For tests of programs that leave names there themselves."""
    return SHARED


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fails the test that left something, and removes it, so that the next test starts clean."""
    processes_before, names_before = all_pids(), set(SHARED.names())
    sockets_before = listening_sockets()
    yield
    deadline = time.monotonic() + patience(PATIENCE_S)
    while True:
        processes, names = new_processes(processes_before), SHARED.made_since(names_before)
        sockets = {i: name for i, name in listening_sockets().items() if i not in sockets_before}
        if not (processes or names or sockets) or time.monotonic() > deadline:
            break
        if sockets:  # of objects in a circle
            gc.collect()
        time.sleep(0.02)
    left = [f"process {pid} ({command_line(pid)})" for pid in processes]
    left += [f"/dev/shm/{name}" for name in names]
    left += [f"listening socket {name}" for name in sockets.values()]
    for pid in processes:
        os.kill(pid, signal.SIGKILL)
    for name in names:
        (SHM / name).unlink(missing_ok=True)
    assert not left, f"the test left behind: {', '.join(left)}"


@pytest.fixture(autouse=True)
def no_communicator_left(nothing_left_behind: None) -> Iterator[None]:
    """Closes what the test process itself made; its next test may use the same domain."""
    yield
    core = sys.modules.get("collops._core")
    if core is not None:
        core.close_all("the test has ended")
