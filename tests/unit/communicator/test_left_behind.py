"""The rules of tests/conftest.py can fail: a process or a name that stays is found and removed, and
a test's time limit grows with the load of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

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
NAME = """
def test_it():
    open("/dev/shm/test-left-behind-name", "w").close()
"""
CLEAN = """
import multiprocessing, subprocess, sys
def test_it():
    subprocess.run([sys.executable, "-c", ""])
    with multiprocessing.get_context("forkserver").Pool(2) as pool:
        assert pool.map(int, "123") == [1, 2, 3]
"""


def run_pytest(
    folder: Path, *texts: str, conftest: str, options: Sequence[str] = (), factor: str = "1"
) -> subprocess.CompletedProcess[str]:
    """Runs some test files under a copy of our conftest.py."""
    (folder / "conftest.py").write_text(conftest)
    for number, text in enumerate(texts):
        (folder / f"test_{number}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "."]
    own = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLLOPS_TEST_PATIENCE": factor}
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools"), **own}
    return subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True)


def test_leftovers_of_a_test_are_found_and_removed(tmp_path: Path) -> None:
    assert PATIENCE in CONFTEST
    # What stays here never ends by itself: to wait for it is of no use.
    conftest = CONFTEST.replace(PATIENCE, "PATIENCE_S = 0.2")
    done = run_pytest(tmp_path, ORPHAN, FORKED_ORPHAN, NAME, conftest=conftest)
    assert done.returncode == 1, done.stdout
    lines = [
        line
        for line in done.stdout.splitlines()
        if "AssertionError: the" in line and line[0] == "E"
    ][:3]
    # A process or name that was not removed would be in the next test's line, too.
    lefts = ("time.sleep(60)", "-m pytest", "/dev/shm/test-left-behind-name")
    for line, left in zip(lines, lefts, strict=True):
        assert "the test left behind" in line
        assert left in line
    assert not Path("/dev/shm/test-left-behind-name").exists()


def test_a_clean_test_passes(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, CLEAN, conftest=CONFTEST)
    assert done.returncode == 0, done.stdout


SLOW = """
import pytest, time
def test_by_the_ini(): time.sleep(0.5)
@pytest.mark.timeout(0.3)
def test_by_its_marker(): time.sleep(0.5)
"""


def test_a_time_limit_is_multiplied(tmp_path: Path) -> None:
    for factor, status in (("1", 1), ("1000", 0)):
        options = ["-p", "pytest_timeout", "-o", "timeout=0.3"]
        done = run_pytest(tmp_path, SLOW, conftest=CONFTEST, options=options, factor=factor)
        assert done.returncode == status, done.stdout
        assert status == 0 or "2 failed" in done.stdout
