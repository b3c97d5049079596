"""A rank that leaves sends its last error, however its process ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import RankErrors, run_ranks
from patience import patience


def test_the_exception_because_of_which_a_rank_leaves() -> None:
    def raise_and_leave(error: BaseException, leave: Callable[[], None]) -> None:
        try:
            raise error
        finally:
            leave()

    def in_thread(call: Callable[[], None]) -> None:
        def quiet() -> None:
            with contextlib.suppress(LookupError):
                call()

        thread = threading.Thread(target=quiet)
        thread.start()
        thread.join()

    def handle_and_go_on(comm: collops.Communicator) -> None:
        try:
            raise LookupError("why")
        except LookupError:
            with comm:
                pass

    def exit_in_except(comm: collops.Communicator) -> None:
        try:
            try:
                raise LookupError("why")
            except LookupError:
                sys.exit(1)
        finally:
            comm.close()

    called, handled = "rank 1 called close()", " while handling LookupError: why"
    ways: dict[str, tuple[Callable[[collops.Communicator], None], str]] = {
        "finally": (lambda c: raise_and_leave(LookupError("why"), c.close), called + handled),
        "abort": (
            lambda c: raise_and_leave(LookupError("why"), c.abort),
            f"rank 1 called abort(){handled}",
        ),
        "thread": (
            lambda c: in_thread(lambda: raise_and_leave(LookupError("why"), c.close)),
            called + handled,
        ),
        "handled": (handle_and_go_on, called + handled),
        "exit with a text": (
            lambda c: raise_and_leave(SystemExit("why"), c.close),
            f"{called} while handling SystemExit: why",
        ),
        "exit in except": (exit_in_except, called + handled),
        "exit": (lambda c: raise_and_leave(SystemExit(0), c.close), called),
        "nothing": (lambda c: c.close(), called),
    }

    def work(rank: int) -> dict[str, str]:
        comms = {name: collops.init(comm_domain=name) for name in ways}
        reasons = {}
        for name, comm in comms.items():
            if rank == 1:
                with contextlib.suppress(LookupError, SystemExit):
                    ways[name][0](comm)
            else:
                with pytest.raises((collops.PeerLostError, collops.AbortedError)) as caught:
                    comm.barrier()
                reasons[name] = caught.value.message
        return reasons

    reasons = run_ranks(work, 2)[0]
    for name, (_, reason) in ways.items():
        assert reason in reasons[name], name
        assert (" while " in reason) == (" while " in reasons[name]), name


@pytest.mark.parametrize("make", ["split", "shrink", "grow"])
def test_a_thread_that_raises_leaves_what_it_has_made(make: str) -> None:
    def work(rank: int) -> Any:
        if make == "grow":
            comm = collops.init(join="") if rank == 2 else collops.init(rank, 2).grow(1)
        else:
            comm = collops.init()
            comm = comm.shrink() if make == "shrink" else comm.split(0)
        comm.barrier()
        if rank == 2:
            raise LookupError("why")
        comm.barrier()

    with pytest.raises(RankErrors) as raised:
        run_ranks(work, 3, threads=True)
    for rank in (0, 1):
        assert isinstance(raised.value.errors[rank], collops.PeerLostError)


def test_a_killed_rank_is_reported_within_a_second() -> None:
    times = multiprocessing.get_context("fork").SimpleQueue()

    def work(rank: int) -> None:
        comm = collops.init()
        comm.barrier()
        if rank == 1:
            time.sleep(0.3)
            times.put(time.monotonic())
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(collops.PeerLostError, match=r"rank 1 \(pid \d+\)"):
            comm.all_gatherv(np.zeros(5))
        times.put(time.monotonic())

    with pytest.raises(RankErrors) as caught:
        run_ranks(work, 3)
    assert list(caught.value.errors) == [1]
    killed, *reported = sorted(times.get() for _ in range(3))
    assert reported[-1] - killed < 1 + patience(1.5)  # a loaded machine may delay a process


PROGRAM = '''
import sys
import numpy as np
import collops

HANDLED = """
try:
    raise KeyError("why")
except KeyError:
    sys.exit(3)
"""
comm = collops.init(int(sys.argv[1]), 2, timeout_s=20)
comm.barrier()
if sys.argv[1] == "1":
    {}
try:
    comm.all_gatherv(np.zeros(3))
except collops.Error as error:
    print(error)
'''


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("raise ValueError('the last words')", "ValueError: the last words"),
        ("sys.exit()", "has left: its process ended [ERROR_PEER_LOST]"),
        (
            "sys.exit('the last words')",
            "has left: its process ended after SystemExit: the last words",
        ),
        (
            "import atexit; atexit.register(comm.close); raise ValueError('the last words')",
            "rank 1 called close() after ValueError: the last words",
        ),
        (
            "import atexit; atexit.register(comm.close); sys.exit('the last words')",
            "rank 1 called close() after SystemExit: the last words",
        ),
        ("exec(HANDLED)", "its process ended after SystemExit: 3 while handling KeyError: 'why'"),
        ("import os; os._exit(3)", "exited without reporting an error"),
    ],
)
def test_a_program_that_ends(ending: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(ending))
    environment = {**os.environ, "COLLOPS_JOB_ID": f"test-{os.getpid()}-{ending}"}
    pipe = subprocess.PIPE
    ranks = [
        subprocess.Popen(
            [sys.executable, path, str(rank)], stdout=pipe, stderr=pipe, text=True, env=environment
        )
        for rank in range(2)
    ]
    printed = [rank.communicate(timeout=patience(60))[0] for rank in ranks]
    assert "rank 1" in printed[0]
    assert reason in printed[0]


def test_a_child_of_multiprocessing_reports_its_last_error(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "import multiprocessing, sys\nimport collops\n"
        "def work(rank):\n"
        "    comm = collops.init(rank, 2, timeout_s=20)\n"
        "    comm.barrier()\n"
        "    if rank == 1: raise ValueError('the last words')\n"
        "    try: comm.barrier()\n"
        "    except collops.Error as error: print(error)\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context(sys.argv[1])\n"
        "    ranks = [context.Process(target=work, args=(rank,)) for rank in range(2)]\n"
        "    for rank in ranks: rank.start()\n"
        "    for rank in ranks: rank.join()\n"
    )
    for method in ("fork", "spawn"):
        done = subprocess.run(
            [sys.executable, path, method],
            capture_output=True,
            text=True,
            timeout=patience(60),
            check=False,
        )
        # From Python 3.13 on, multiprocessing has forgotten the error when it lets us leave.
        words = "its process ended" if sys.version_info >= (3, 13) else "the last words"
        assert f"has left: {words}" in done.stdout.replace("ValueError: ", ""), done.stderr
