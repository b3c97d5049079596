"""The rule of tests/conftest.py can fail: a process or a name that stays is found and removed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"
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
NAME = """
def test_it():
    open("/dev/shm/collops-left-behind-test", "w").close()
"""
CLEAN = """
import multiprocessing, subprocess, sys
def test_it():
    subprocess.run([sys.executable, "-c", ""])
    with multiprocessing.get_context("forkserver").Pool(2) as pool:
        assert pool.map(int, "123") == [1, 2, 3]
"""


def run_pytest(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Runs one test file under a copy of our conftest.py."""
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (ORPHAN, "time.sleep(60)"),
        (FORKED_ORPHAN, "-m pytest"),
        (NAME, "/dev/shm/collops-left-behind-test"),
    ],
)
def test_what_stays_is_found_and_removed(tmp_path: Path, text: str, left: str) -> None:
    done = run_pytest(tmp_path, text)
    assert done.returncode == 1, done.stdout
    [line] = [line for line in done.stdout.splitlines() if line.startswith("E   ")][:1]
    assert "the test left behind" in line
    assert left in line
    assert not Path("/dev/shm/collops-left-behind-test").exists()


def test_a_clean_test_passes(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, CLEAN)
    assert done.returncode == 0, done.stdout
