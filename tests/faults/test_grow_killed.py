"""Members and new processes are killed, and others take their place; nothing is left behind."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from patience import patience
from tests import programs

PROGRAM = Path(__file__).with_name("growing_rank.py")
SIZE = 3


# Said by a rank 0 that waits for ten seconds.
WAITS = "collops: rank 0: grow: "


def test_others_take_their_place(left_behind: Callable[[str], list[str]]) -> None:
    job = f"grown-{os.getpid()}"
    draw = random.Random(7)

    def start(*place: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), str(SIZE), *map(str, place)],
            env={**os.environ, "COLLOPS_JOB_ID": job},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def await_all() -> None:
        """Until each has said that the group has the pids of all."""
        want = {process.pid for process in processes}
        for process in processes:
            assert process.stdout is not None
            while {int(pid) for pid in process.stdout.readline().split()} != want:
                assert process.poll() is None

    processes = [start(0, 2), start(1, 2), start()]
    late = threading.Timer(patience(60), lambda: [process.kill() for process in processes])
    late.start()
    try:
        await_all()
        for _ in range(3):
            for killed in draw.sample(range(SIZE), draw.randint(1, 2)):
                processes[killed].kill()
                said = programs.own(processes[killed].communicate()[1]).splitlines()
                assert [line for line in said if WAITS not in line] == []
                processes[killed] = start()
                time.sleep(draw.random() * 0.3)
            await_all()
        processes[0].kill()
        time.sleep(0.1)  # the others are at the entrance
    finally:
        late.cancel()
        for process in processes:
            process.kill()
            process.communicate()
    assert left_behind(job) == []
