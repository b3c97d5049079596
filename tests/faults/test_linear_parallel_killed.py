"""A rank is killed inside a LinearParallel: all others get an error, and nothing is left behind."""

from __future__ import annotations

import os
import random
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from patience import patience

PROGRAM = Path(__file__).with_name("multiplying_rank.py")
RANKS = 4
LIMIT_S = patience(4.0)
LeftBehind = Callable[[str], list[str]]


def start(job: str, fused: str, *arguments: str) -> list[subprocess.Popen[str]]:
    """Starts the ranks of a job, and returns when all of them multiply, or with "first" will."""
    environment = {**os.environ, "COLLOPS_JOB_ID": job, "COLLOPS_FUSED": fused}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "running\n"
    return ranks


def line_within(rank: subprocess.Popen[str], seconds: float) -> str:
    """The next line of a rank, or nothing when it does not come in time."""
    with selectors.DefaultSelector() as selector:
        assert rank.stdout is not None
        selector.register(rank.stdout, selectors.EVENT_READ)
        return rank.stdout.readline() if selector.select(max(seconds, 0.0)) else ""


def check_all_hear(ranks: list[subprocess.Popen[str]], killed: int, numbered: bool) -> None:
    """Every other rank reports within the limit that this rank is lost, by its number."""
    end = time.monotonic() + LIMIT_S
    for rank in (r for r in range(RANKS) if r != killed):
        line = line_within(ranks[rank], end - time.monotonic())
        assert line.startswith("101 "), f"rank {rank}: {line or 'still waits'}"
        assert f"(pid {ranks[killed].pid})" in line
        assert not numbered or f"rank {killed} (pid" in line


def end(ranks: list[subprocess.Popen[str]]) -> None:
    """Ends the processes that still run."""
    for process in ranks:
        process.kill()
    for process in ranks:
        process.communicate()


@pytest.mark.parametrize(("killed", "fused"), [(0, "1"), (0, "0"), (1, "1"), (3, "0")])
def test_the_others_hear_of_a_killed_rank(killed: int, fused: str, left_behind: LeftBehind) -> None:
    job = f"multiplied-{os.getpid()}-{killed}-{fused}"
    ranks = start(job, fused)
    try:
        time.sleep(0.1 + random.Random(killed).random() * 0.1)
        ranks[killed].kill()
        # The collectives of the pipeline number the ranks of a group of the grid.
        check_all_hear(ranks, killed, numbered=fused == "1")
    finally:
        end(ranks)
    assert left_behind(job) == []


@pytest.mark.parametrize(("killed", "after_s"), [(0, 0.0), (3, 0.1), (0, 0.2), (3, 0.3)])
def test_also_in_the_first_call_of_the_pipeline(
    killed: int, after_s: float, left_behind: LeftBehind
) -> None:
    """In which the communicators of its groups meet, one after the other."""
    job = f"multiplied-first-{os.getpid()}-{killed}-{after_s}"
    ranks = start(job, "0", "first")
    try:
        time.sleep(after_s)
        ranks[killed].kill()
        check_all_hear(ranks, killed, numbered=False)
    finally:
        end(ranks)
    assert left_behind(job) == []
