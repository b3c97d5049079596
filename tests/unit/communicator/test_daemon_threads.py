"""A daemon thread that is inside a call when the interpreter ends neither crashes nor delays it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from patience import patience

# The thread's call is ended by the exit itself and then wants the GIL. With so long a turn of the
# main thread it gets it only while that thread sleeps, deep in the interpreter's end.
ENDING = """
import sys, threading, time
import numpy as np
import collops

class Late:
    def __del__(self, sleep=time.sleep):
        sleep(0.3)

def leave_it_in(*calls):
    threading.excepthook = lambda _: None
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    sys.late = late = Late()
    sys.setswitchinterval(5)
    sys.exit(7)
"""

FIRST_CONTACT = """
def meet(domain):
    return lambda: collops.init(rank=0, rank_size=2, comm_domain=domain)

leave_it_in(*map(meet, "abcd"))
"""

CALL = """
rank = int(sys.argv[1])
comms = [collops.init(rank, 2, comm_domain=domain, timeout_s=30) for domain in "abcd"]

def execute(comm):
    counts, domain = np.array([3, 3]), comm._core.comm_domain
    param = collops.AllGatherVParam(rank=rank, rank_size=2, backend="shm", comm_domain=domain)
    ins = [np.ones(3), counts[:1], counts, np.array([0, 3]), np.empty(6, np.float16)]
    return collops.Operation(param).forward(ins)

def close(comm):
    comm.start("all_gatherv", np.ones(3), [3, 3])  # close() joins the thread that makes it
    comm.close()

def product(comm):
    ones = np.ones((2, 2), np.float32)
    comm.start("matmul_all_reduce", ones, ones).wait()

calls = {
    "plain": lambda comm: comm.all_gatherv(np.ones(3)),
    "execute": execute,
    "wait": lambda comm: comm.start("all_gatherv", np.ones(3), [3, 3]).wait(),
    "product": product,
    "recv": lambda comm: comm.recv(np.ones(3), 1),
    "split": lambda comm: comm.split(0),
    "close": close,
}
for comm in comms:
    comm.barrier()
call = calls[sys.argv[2]]
if rank == 0:
    leave_it_in(*(lambda comm=comm: call(comm) for comm in comms))
for comm in comms:
    try:
        comm.recv(np.ones(1), 0, tag=9)
    except (collops.AbortedError, collops.PeerLostError) as error:
        print(error.message)
"""


def start(path: Path, *words: str) -> subprocess.Popen[str]:
    """A rank, in a job of this test's own."""
    pipe = subprocess.PIPE
    environment = {**os.environ, "COLLOPS_JOB_ID": str(path)[-60:]}
    command = [sys.executable, path, *words]
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


def test_first_contact(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(ENDING + FIRST_CONTACT)
    rank = start(path)
    errors = rank.communicate(timeout=patience(60))[1]
    assert (rank.returncode, errors) == (7, "")


@pytest.mark.parametrize("call", ["plain", "execute", "wait", "product", "recv", "split", "close"])
def test_a_call(call: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(ENDING + CALL)
    ranks = [start(path, str(rank), call) for rank in range(2)]
    printed = [rank.communicate(timeout=patience(60)) for rank in ranks]
    assert (ranks[0].returncode, printed[0][1]) == (7, "")
    reason = "called close()" if call == "close" else "its process ended"
    assert printed[1][0].count(reason) == 4, printed[1]
