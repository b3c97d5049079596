"""Ranks are killed in calls: the others shrink the group, go on, and nothing is left behind."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from patience import patience
from tests import programs

PROGRAM = Path(__file__).with_name("shrinking_rank.py")
AT_ONCE_S = patience(1.0)
LeftBehind = Callable[[str], list[str]]


@pytest.mark.parametrize(("size", "killed"), [(2, [0]), (3, [2]), (4, [0, 3]), (5, [1, 2, 0])])
def test_the_others_go_on(size: int, killed: list[int], left_behind: LeftBehind) -> None:
    job = f"shrunk-{os.getpid()}-{size}"
    left = [rank for rank in range(size) if rank not in killed]
    delay = random.Random(size)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), str(size), str(len(left))],
            env={**os.environ, "COLLOPS_JOB_ID": job},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        for rank in ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline() == "running\n"
        for rank in killed:
            time.sleep(delay.random() * 0.05)
            ranks[rank].kill()
        for rank in left:
            output, errors = ranks[rank].communicate(timeout=patience(30))
            assert (ranks[rank].returncode, programs.own(errors)) == (0, "")
            took_s, *members = output.split()
            assert [int(member) for member in members] == left
            assert float(took_s) < AT_ONCE_S
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    assert left_behind(job) == []
