"""A program that ends in first contact, or with calls and messages under way, says so at once."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patience import patience
from tests.faults.ending_rank import ENDINGS, PHASES

PROGRAM = Path(__file__).with_name("ending_rank.py")
LIMIT_S = 1.0
LOADED_S = patience(1.5)  # what a busy machine may add
CODES = (101, 104)  # lost; or aborted, where it ends a call that is under way
REASONS = {"an exception": "ValueError: the last words"}

ALL = [(ends, *case) for ends in (0, 1) for case in itertools.product(PHASES, ENDINGS)]
FEW = [(1, "first contact", "sys.exit"), (1, "started messages", "the end")]
CASES = ALL if os.environ.get("COLLOPS_ALL_FAULTS") else FEW


def start(rank: int, ranks: int, *words: str) -> subprocess.Popen[str]:
    """A rank, in a job of this test's own."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(rank), str(ranks), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLLOPS_JOB_ID": f"shutdown-{os.getpid()}-{'-'.join(words)}"},
    )


def await_there(rank: subprocess.Popen[str]) -> None:
    assert rank.stdout is not None
    assert rank.stdout.readline() == "there\n"


@pytest.mark.parametrize(("ends", "phase", "ending"), CASES)
def test_the_others_hear_at_once(ends: int, phase: str, ending: str) -> None:
    # Without rank 2 first contact is not over.
    meets = "first contact" not in phase
    ranks = []
    for rank in range(2):
        ranks.append(start(rank, 2 if meets else 3, str(ends), phase, ending))
        # Rank 0 listens before rank 1 says hello.
        if not meets:
            await_there(ranks[-1])
    for rank in ranks if meets else []:
        await_there(rank)
    time.sleep(0.1)  # the other rank waits in its call now, in all but rare cases
    printed = [ranks[ends].communicate("\n", timeout=patience(60))[0]]
    printed += [
        rank.communicate(timeout=patience(60))[0] for rank in ranks if rank is not ranks[ends]
    ]
    ended, heard = printed
    when, code, message = heard.split(" ", 2)
    assert int(code) in CODES, message
    assert f"rank {ends} " in message
    assert REASONS.get(ending, "its process ended") in message
    assert float(when) - float(ended) < LIMIT_S + LOADED_S
