"""tools/run_tests.py: what it says of the time that tests take, and of one whose time ran out."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import run_tests

CTEST = """
add_test(hangs sleep 60)
add_test(quick true)
"""
PYTEST = """
import time
def test_hangs(): time.sleep(60)
"""


def test_it_says_how_long_it_will_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the last whole run, else from the reference, for a machine as slow as it is now."""
    monkeypatch.setattr(run_tests, "LAST", tmp_path / "last.json")
    monkeypatch.setattr(run_tests, "REFERENCE", tmp_path / "seconds")
    monkeypatch.setattr(run_tests, "factor", lambda: 2.0)
    (tmp_path / "seconds").write_text("check 300\ntest 480\n")
    assert run_tests.expected().startswith("about 16 minutes: 8 minutes on two quiet cores, ")
    (tmp_path / "last.json").write_text(json.dumps({"seconds": 80, "factor": 4.0}))
    assert run_tests.expected().startswith("about 40 s: 80 s last time, when this machine was 4 ")


def test_the_slowest_files_are_named() -> None:
    outcome = run_tests.Outcome("Python")
    outcome.files.update({f"tests.unit.test_{n}": n for n in range(20)})
    names = outcome.slowest().split(", ")
    assert names[0] == "unit.test_19 19 s"
    assert names[-1] == "unit.test_10 10 s"


@pytest.mark.skipif(shutil.which("ctest") is None, reason="no ctest")
def test_a_timeout_of_a_program_names_the_load(tmp_path: Path) -> None:
    (tmp_path / "CTestTestfile.cmake").write_text(CTEST)
    outcome = run_tests.Outcome("C++")
    command = ["ctest", "--test-dir", str(tmp_path), "--timeout", "1"]
    run_tests.run_ctest(command, tmp_path / "ctest.xml", outcome)
    [failure] = outcome.failures
    assert failure.startswith("hangs: Timeout (load in the last ")
    assert set(outcome.files) == {"hangs", "quick"}


def test_a_timeout_of_a_test_names_the_load(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PYTEST)
    report = tmp_path / "report.xml"
    options = ["-p", "no:cacheprovider", "-o", "timeout=1", f"--junitxml={report}"]
    subprocess.run([sys.executable, "-m", "pytest", *options, tmp_path], capture_output=True)
    outcome = run_tests.Outcome("Python")
    run_tests.read_report(report, outcome)
    [failure] = outcome.failures
    assert "Timeout (>1.0s) from pytest-timeout. (load in the last " in failure


def test_a_build_that_goes_on_is_started_again_at_the_usual_priority(tmp_path: Path) -> None:
    begun, priorities = tmp_path / "begun", tmp_path / "priorities"
    once = f"nice >> {priorities}; test -e {begun} || {{ touch {begun}; sleep 60; }}"
    build = run_tests.CppTests.__new__(run_tests.CppTests)
    build._log, build._command = tmp_path / "log", ["sh", "-c", once]
    build._build = build._start("nice", "-n", "3")
    while not begun.exists():
        time.sleep(0.01)
    assert build._build_now() == 0
    first, second = map(int, priorities.read_text().split())
    assert first == min(second + 3, 19)
