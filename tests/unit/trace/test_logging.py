"""Lines of the core go to the logger collops, or to standard error if nobody configured logging."""

from __future__ import annotations

import os
import re
import sys

import pytest

from patience import patience
from tests import programs

CALLS = """
from collops.testing import run_ranks
import collops, numpy as np
def work(rank):
    comm = collops.init(comm_domain='tp0')
    comm.start("all_gatherv", np.zeros(rank + 1, np.float32), [1, 2]).wait()
    comm.all_gatherv(np.zeros(rank + 1, np.float32), [1, 2])
run_ranks(work, 2, threads={threads})
"""


def run(code: str) -> tuple[list[str], list[str]]:
    """The lines that a program prints and those that it writes to standard error."""
    done = programs.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env={**os.environ, "COLLOPS_TRACE": "1"},
        timeout=patience(60),
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines()), sorted(done.stderr.splitlines())


def check_lines(lines: list[str], before: str) -> None:
    starts = [
        f"{before}r{rank}/2 tp0 shm all_gatherv call={call} send={rank + 1} float32 recv=3 "
        for rank in range(2)
        for call in (1, 2)
    ]
    assert [line.startswith(start) for line, start in zip(lines, starts, strict=True)] == [True] * 4


@pytest.mark.parametrize("threads", [False, True])
def test_a_configured_logger_gets_the_lines(threads: bool) -> None:
    configure = (
        "import logging, sys\n"
        "logging.basicConfig(stream=sys.stdout, format='%(levelname)s:%(name)s:%(message)s')\n"
    )
    lines, errors = run(configure + CALLS.format(threads=threads))
    check_lines(lines, "INFO:collops:")
    assert errors == []


@pytest.mark.parametrize("before", ["", "import logging\n"])
def test_without_a_handler_they_are_written_as_before(before: str) -> None:
    lines, errors = run(before + CALLS.format(threads=False))
    assert lines == []
    check_lines(errors, "")


def test_a_handler_that_raises_does_not_disturb_a_call() -> None:
    configure = (
        "import logging\n"
        "class Broken(logging.Handler):\n"
        "    def handle(self, record):\n"
        "        raise RuntimeError('a fault of the handler')\n"
        "logging.getLogger('collops').addHandler(Broken())\n"
    )
    _, errors = run(configure + CALLS.format(threads=False))
    # Both processes write, and one may write inside the other's line.
    check_lines(sorted(re.findall(r"r\d/2 tp0 .*", "\n".join(errors))), "")
    assert "RuntimeError: a fault of the handler" in "\n".join(errors)


def test_a_slow_handler_does_not_keep_a_process_from_ending() -> None:
    """The queue's thread of C++ is inside the handler when the interpreter ends."""
    code = (
        "import logging, time, numpy as np, collops\n"
        "class Slow(logging.Handler):\n"
        "    def emit(self, record):\n"
        "        time.sleep(0.5)\n"
        "logging.getLogger('collops').addHandler(Slow())\n"
        "comm = collops.init(0, 1, comm_domain='slow')\n"
        "for _ in range(3):\n"
        "    comm.start('all_reduce', np.zeros(3, np.float32))\n"
        "time.sleep(0.2)\n"
    )
    assert run(code) == ([], [])
