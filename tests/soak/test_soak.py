"""A short soak is clean, says what it drew, and ends everything; what is wrong, it finds."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from patience import patience
from tests import programs
from tests.soak import soak, soak_plain, soak_turn
from tests.soak.soak_resources import MIB, SLACK, Resources, leaks

ROOT = Path(__file__).resolve().parents[2]
SHORT = ["--most-mib", "1", "--many", "0", "--seed", "15"]


def test_a_short_soak_is_clean(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak, "PHASES", 3)
    assert soak.main([*SHORT, "--seconds", "1", "--stops", "8"]) == 0
    said = capfd.readouterr().out
    assert "soak: seed 15: 0 errors, nothing grew" in said
    assert re.search(r"^  all +[1-9]\d+ ", said, re.MULTILINE)
    assert "  LinearParallel  " in said
    assert "process 3: memory" in said


def test_a_wrong_result_is_found(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Golden is changed here, which the ranks inherit: that of one reduction."""
    right = soak_plain.reduce_ranks

    def wrong(values: Any, op: str, dtype: str) -> Any:
        out = right(values, op, dtype)
        soak_turn.bytes_of(out)[-1:] ^= 1
        return out

    monkeypatch.setattr(soak_plain, "reduce_ranks", wrong)
    assert soak.main([*SHORT, "--seconds", "60", "--stops", "0", "--threads", "0"]) == 1
    said = capfd.readouterr().out
    assert "soak_turn.Wrong: 1 of " in said
    assert "soak: seed 15: process " in said
    assert ", call " in said


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.load), signal.SIGKILL]
)
def test_it_leaves_no_process(how: int) -> None:
    """Also where it is killed, and while a rank is stopped."""
    command = [sys.executable, "-m", "tests.soak.soak", *SHORT, "--seconds", "60", "--stops", "50"]
    program = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + patience(20)
        while len(children_of(program.pid)) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        children = children_of(program.pid)
        assert len(children) == 4
        time.sleep(0.3)
        program.send_signal(how)
        said, _ = program.communicate(timeout=patience(20))
    finally:
        program.kill()
        program.wait()
    assert program.returncode == (130 if how != signal.SIGKILL else -9)
    assert ("all its processes have ended" in said) == (how != signal.SIGKILL)
    programs.await_gone(*children)


def test_what_grows_is_found_and_what_comes_and_goes_is_not() -> None:
    flat = [Resources(100 * MIB + noise * MIB, 20, 3, 400) for noise in (0, 9, 2, 40, 1, 3)]
    assert leaks(flat) == []
    grown = [one._replace(descriptors=20 + 9 * at) for at, one in enumerate(flat)]
    assert len(leaks(grown)) == 1
    assert leaks(grown)[0].startswith("descriptors grew by 18, from 20 ")
    more = [one._replace(memory_bytes=at * SLACK.memory_bytes) for at, one in enumerate(flat)]
    assert [leak.split()[0] for leak in leaks(more)] == ["memory_bytes"]
