"""The rules of tests/conftest.py can fail: what stays is found and removed, what other programs
have is left alone, and a test's time limit grows with the load of the machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CONFTEST = (ROOT / "tests" / "conftest.py").read_text()
PATIENCE = "PATIENCE_S = 2.0"
ORPHAN = """
import subprocess, sys
def test_it():
    child = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', {sleeper!r}])"
    subprocess.run([sys.executable, "-c", child.format(sleeper="import time; time.sleep(60)")])
"""
FORKED_ORPHAN = """
import os, time
def test_it():
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)
    os.waitpid(child, 0)
"""
# A name of each kind, held by a process that is killed, so that nothing tidies up after it.
HOLDER = """
import os, signal, subprocess, sys
PROGRAM = {program!r}
def test_it():
    command = [sys.executable, "-c", PROGRAM + "; print('made', flush=True); input()"]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    holder = subprocess.Popen(command, **pipes)
    with holder:
        assert holder.stdout.readline() == b"made\\n"
        {wait}
        holder.kill()
"""
FILE = "held = open('/dev/shm/{name}', 'w')"
MULTIPROCESSING = (
    "from multiprocessing import resource_tracker, shared_memory;"
    "resource_tracker.register = lambda *_: None;"
    "held = shared_memory.SharedMemory(create=True, size=64)"
)
LEAKS = {
    "ours": (FILE.format(name="collops-segment"), "collops-segment"),
    "Open MPI's": (FILE.format(name="vader_segment.host.0.1"), "vader_segment.host.0.1"),
    "MPICH's": (FILE.format(name="mpich_shar_tmpX1"), "mpich_shar_tmpX1"),
    "multiprocessing's": (MULTIPROCESSING, "psm_"),
    "torch's": (FILE.format(name="torch_12_345_0"), "torch_12_345_0"),
}
LISTENER = """
import socket
KEPT = []
def test_it():
    KEPT.append(socket.create_server(("127.0.0.1", 0)))
"""
# It says when it runs, and waits until others have made names.
BESIDE = """
import pathlib, time
def test_it():
    pathlib.Path("running").touch()
    while not pathlib.Path("made").exists():
        time.sleep(0.01)
"""


def run_pytest(
    folder: Path,
    *texts: str,
    conftest: str = CONFTEST,
    options: Sequence[str] = (),
    factor: str = "1",
    shares: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Runs some test files under a copy of our conftest.py."""
    (folder / "conftest.py").write_text(conftest)
    for number, text in enumerate(texts):
        (folder / f"test_{number}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "."]
    own = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLLOPS_TEST_PATIENCE": factor}
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools"), **own}
    if shares:
        env["PYTEST_SHARES_SHM"] = "1"
    return subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True)


def left_by_each(stdout: str) -> list[str]:
    """What the tests of a run left behind, one line for each test."""
    lines = (line for line in stdout.splitlines() if line.startswith("E  "))
    return [line.partition("left behind: ")[2] for line in lines if "left behind: " in line]


def test_leftovers_of_a_test_are_found_and_removed(tmp_path: Path) -> None:
    assert PATIENCE in CONFTEST
    # What stays here never ends by itself: to wait for it is of no use.
    conftest = CONFTEST.replace(PATIENCE, "PATIENCE_S = 0.2")
    done = run_pytest(tmp_path, ORPHAN, FORKED_ORPHAN, LISTENER, conftest=conftest)
    assert done.returncode == 1, done.stdout
    # A process that was not ended would be in the next test's line, too.
    lefts = ("time.sleep(60)", "-m pytest", "listening socket tcp 0100007F:")
    for line, left in zip(left_by_each(done.stdout), lefts, strict=True):
        assert left in line
        assert ", " not in line


@pytest.mark.parametrize("shares", [False, True], ids=["private", "shared"])
def test_names_that_stay_are_found_and_removed(tmp_path: Path, shares: bool) -> None:
    names_before = set(os.listdir("/dev/shm"))
    # Where /dev/shm is shared, a name is ours once it was seen open.
    wait = "import conftest; conftest.SHARED.made_since(set())" if shares else "pass"
    texts = [HOLDER.format(program=program, wait=wait) for program, _ in LEAKS.values()]
    conftest = CONFTEST.replace(PATIENCE, "PATIENCE_S = 0.2")
    done = run_pytest(tmp_path, *texts, conftest=conftest, shares=shares)
    assert done.returncode == 1, done.stdout
    found = left_by_each(done.stdout)
    for line, (_, name) in zip(found, LEAKS.values(), strict=True):
        assert line.startswith(f"/dev/shm/{name}")
        assert ", " not in line
    assert set(os.listdir("/dev/shm")) == names_before


@pytest.mark.parametrize("shares", [False, True], ids=["private", "shared"])
def test_what_others_make_is_left_alone(tmp_path: Path, shares: bool) -> None:
    """Names that nobody has open now, a process, and a listening socket."""
    folder = Path("/dev/shm")
    names = [folder / f"{kind}-{os.getpid()}" for kind in ("sem.other", "psm_other", "torch_1")]
    with ThreadPoolExecutor() as pool:
        running = pool.submit(run_pytest, tmp_path, BESIDE, shares=shares)
        try:
            while not (tmp_path / "running").exists():
                assert not running.done(), running.result().stdout
                time.sleep(0.01)
            for name in names:
                name.touch()
            sleeper = subprocess.Popen(["sleep", "60"])
            with socket.create_server(("127.0.0.1", 0)):
                (tmp_path / "made").touch()
                done = running.result()
            assert done.returncode == 0, done.stdout
            assert sleeper.poll() is None
            sleeper.kill()
            sleeper.wait()
            assert [name for name in names if not name.exists()] == []
            assert ("not known whose" in done.stdout) == shares
        finally:
            for name in names:
                name.unlink(missing_ok=True)
