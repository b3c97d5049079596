"""SIGKILL to every rank, at any instant, leaves nothing behind, and the next job starts at once."""

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

PROGRAM = Path(__file__).with_name("calling_rank.py")
RANKS = 3
LeftBehind = Callable[[str], list[str]]


def start(job: str, calls: int) -> list[subprocess.Popen[str]]:
    """Starts the ranks of a job; they meet under `job`."""
    environment = {**os.environ, "COLLOPS_JOB_ID": job}
    return [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), str(RANKS), str(calls)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]


def test_the_socket_of_first_contact_is_seen(left_behind: LeftBehind) -> None:
    """The other tests would pass without looking if the name were wrong."""
    job = f"seen-{os.getpid()}"
    alone = start(job, calls=0)
    for rank in alone[1:]:
        rank.kill()
        rank.communicate()
    for _ in range(200):
        if left_behind(job):
            break
        time.sleep(0.05)
    assert [name[:9] for name in left_behind(job)] == ["@collops-"]
    alone[0].kill()
    alone[0].communicate()
    assert left_behind(job) == []


# In first contact, and in the middle of calls.
@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.3])
def test_all_ranks_killed(after_s: float, left_behind: LeftBehind) -> None:
    job = f"killed-{os.getpid()}-{after_s}"
    delay = random.Random(after_s)
    ranks = start(job, calls=0)
    for rank in ranks:
        assert rank.stdout is not None
        if after_s > 0:
            assert rank.stdout.readline() == "running\n"
    time.sleep(after_s + delay.random() * 0.05)
    for rank in ranks:
        rank.kill()
    for rank in ranks:
        rank.communicate()
    assert left_behind(job) == []

    # The same name, so that anything left would be met.
    for rank in start(job, calls=3):
        output, errors = rank.communicate(timeout=patience(60))
        assert (rank.returncode, output, programs.own(errors)) == (0, "running\n", "")
    assert left_behind(job) == []
