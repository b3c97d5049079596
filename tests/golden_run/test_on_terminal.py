"""What `collops golden` shows on a terminal alone: colours and progress."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from collops.cli import main
from patience import patience
from tests import programs

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "examples" / "golden"
CaseFile = Callable[..., Path]


def on_terminal(*arguments: object, status: int = 0, **environment: str) -> str:
    """The command's output on a terminal."""
    ours, theirs = pty.openpty()
    program = "from collops.cli import main; raise SystemExit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, "golden", *map(str, arguments)],
        stdout=theirs,
        stderr=theirs,
        timeout=patience(100),
        env={**os.environ, "TERM": "xterm", **environment},
    )
    assert done.returncode == status
    os.close(theirs)
    text = os.read(ours, 1 << 16).decode()
    os.close(ours)
    return text


def test_progress_is_for_terminals_alone() -> None:
    file = SAMPLES / "all_gather_v.csv"
    shown = programs.own(on_terminal("run", file))
    assert "] 27/27, 0 failed, " in shown
    assert "27 passed" in shown.rpartition("\r\x1b[K")[2]
    assert programs.run_forked(main, ["golden", "run", str(file)]).stderr == ""


def test_colors_are_for_terminals_without_no_color(case_file: CaseFile) -> None:
    path = case_file({"expected": "C:ERROR_INVALID_PARAM"})
    assert "\x1b[31mFAILED\x1b[0m" in on_terminal("run", path, status=1, NO_COLOR="")
    assert "\x1b[31m" not in on_terminal("run", path, status=1, NO_COLOR="1")
    assert "\x1b" not in programs.run_forked(main, ["golden", "run", str(path)]).stdout


def test_generate_shows_its_progress(tmp_path: Path) -> None:
    shown = on_terminal("generate", tmp_path, "--op", "send", "--filter", "p2.")
    assert re.search(r"] 1/\d+, cases written\x1b\[K", shown)
