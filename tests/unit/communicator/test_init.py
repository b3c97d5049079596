"""collops.init: ranks, communicators and error messages."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience


def error_of(*args: Any, **kwargs: Any) -> collops.Error:
    """The error of an init that must fail."""
    with pytest.raises(collops.Error) as caught:
        collops.init(*args, **kwargs)
    return caught.value


def test_a_misspelt_variable_is_logged_once() -> None:
    program = "import collops; [collops.init(0, 1, comm_domain=d) for d in 'ab']"
    names = {"COLLOPS_TIMEOUT": "3", "COLLOPS_OF_THE_USER": "1", "COLLOPS_TEST_TIMEOUT_S": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | names, capture_output=True, check=True
    )
    said = b"unknown variable COLLOPS_TIMEOUT; did you mean COLLOPS_TIMEOUT_S?\n"
    assert done.stderr == said


def test_the_same_domain_is_the_same_object() -> None:
    def work(rank: int) -> list[bool]:
        first, again = collops.init(), collops.init()
        other = collops.init(comm_domain="other")
        same = first is again
        gathered = other.all_gatherv(np.array([rank])).tolist() == [0, 1]
        first.close()
        return [same, other is not first, gathered, collops.init() is not first]

    assert run_ranks(work, 2) == [[True] * 4] * 2


def test_structs_of_that_domain_use_it() -> None:
    def work(rank: int) -> list[int]:
        comm = collops.init(comm_domain="dp")
        op = collops.Operation(
            collops.AllGatherVParam(rank=rank, rank_size=2, backend="shm", comm_domain="dp")
        )
        x, one = comm.empty(1, np.int64), np.ones(2, np.int64)
        x[0] = rank
        [out] = op.forward([x, one[:1], one, np.array([0, 1]), np.empty(2, np.float16)])
        comm.close()
        with pytest.raises(collops.Error, match="called close"):
            op.forward([x, one[:1], one, np.array([0, 1]), np.empty(2, np.float16)])
        return list(out)

    assert run_ranks(work, 2) == [[0, 1], [0, 1]]


def test_hccl_comm_takes_the_communicator_or_its_handle() -> None:
    def work(rank: int) -> list[list[int]]:
        comm = collops.init(comm_domain="mine")
        results = []
        for given in (comm, comm.handle):
            op = collops.Operation(
                collops.AllGatherVParam(hccl_comm=given, rank_size=2, backend="shm")
            )
            one = np.ones(2, np.int64)
            [out] = op.forward(
                [np.array([rank]), one[:1], one, np.array([0, 1]), np.empty(2, np.float16)]
            )
            results.append(out.tolist())
        return results

    assert run_ranks(work, 2) == [[[0, 1], [0, 1]]] * 2


def test_arguments_come_before_the_launcher() -> None:
    def work(rank: int) -> list[int]:
        comm = collops.init(1 - rank, 2)
        return [comm.rank, *comm.all_gatherv(np.array([10 * rank]))]

    assert run_ranks(work, 2) == [[1, 10, 0], [0, 10, 0]]


def test_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert error_of(0, 1, backend="smh").code == 1
    error = error_of(0, 1, backend="hccl")
    assert isinstance(error, NotImplementedError)
    assert "libhccl.so" in error.message
    monkeypatch.setenv("COLLOPS_BACKEND", "hccl=shm")
    with collops.init(0, 1, backend="hccl") as comm:
        assert "backend shm" in repr(comm)


def test_a_rank_that_never_comes_is_named() -> None:
    error = error_of(0, 2, timeout_s=0.3)
    assert isinstance(error, TimeoutError)
    assert "rank 1" in error.message


def test_a_wrong_handle_is_an_error() -> None:
    for number in (12345, 2**63):
        with pytest.raises(collops.Error, match="not an open communicator") as caught:
            collops.Operation(collops.AllGatherVParam(hccl_comm=number, rank_size=2, backend="shm"))
        assert caught.value.code == 1


def test_an_unused_domain_connects_anew() -> None:
    def param(rank: int, size: int, domain: str) -> collops.AllGatherVParam:
        return collops.AllGatherVParam(rank=rank, rank_size=size, backend="shm", comm_domain=domain)

    def gather(rank: int, size: int, domain: str) -> list[int]:
        op = collops.Operation(param(rank, size, domain))
        one = np.ones(size, np.int64)
        ins = [np.array([rank]), one[:1], one, np.arange(size), np.empty(size, np.float16)]
        return [int(x) for x in op.forward(ins)[0]]

    def work(rank: int) -> list[list[int]]:
        results, all_ranks = [], collops.init()
        for i in range(10):
            if rank < 2:
                gather(rank, 2, f"met{i}")
                collops.Operation(param(rank, 2, f"not met{i}"))
            all_ranks.barrier()
            results += [gather(rank, 3, f"met{i}"), gather(rank, 3, f"not met{i}")]
        return results

    assert run_ranks(work, 3, timeout=patience(30)) == [[[0, 1, 2]] * 20] * 3


def test_a_domain_stays_while_something_uses_it() -> None:
    def work(rank: int) -> list[str]:
        comm = collops.init(comm_domain="d")
        window = comm.empty(3, np.int64)
        said = [error_of(0, 1, comm_domain="d").message]
        del comm
        said.append(error_of(0, 1, comm_domain="d").message)
        comm = collops.init(comm_domain="d")
        assert comm.all_gatherv(window[:1]).size == 2
        del window
        op = collops.Operation(collops.AllGatherVParam(hccl_comm=comm, rank_size=2, backend="shm"))
        del comm
        said.append(error_of(0, 1, comm_domain="d").message)
        del op
        with collops.init(0, 1, comm_domain="d" if rank == 0 else "e") as alone:
            assert alone.size == 1
        return said

    live = 'this process already has a communicator of 2 ranks (comm_domain "d", backend shm), '
    wanted = [live + "got 1: close() it, or pass another comm_domain"] * 3
    assert run_ranks(work, 2, timeout=patience(30)) == [wanted] * 2


@pytest.mark.parametrize("threads", [False, True])
def test_more_ranks_than_were_started(threads: bool) -> None:
    def work(rank: int) -> tuple[int, bool]:
        error = error_of(rank, 3, timeout_s=patience(20))
        started = "run_ranks has started 2 threads" if threads else "COLLOPS_RANK_SIZE is 2: "
        return error.code, f"rank_size is 3, but {started}" in error.message

    start = time.monotonic()
    assert run_ranks(work, 2, threads=threads) == [(1, True)] * 2
    assert time.monotonic() - start < patience(10)


PROGRAM = """
import multiprocessing, os, sys
import numpy as np
import collops

def work(rank, queue):
    comm = collops.init(rank, 2, timeout_s=20)
    queue.put(comm.all_gatherv(np.array([rank, int(sys.argv[2])])).tolist())

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.SimpleQueue()
    ranks = [context.Process(target=work, args=(rank, queue)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    results = [queue.get() for _ in ranks]
    for rank in ranks:
        rank.join()
    print(results[0] == results[1], results[0])
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_plain_multiprocessing_is_a_job_of_its_own(method: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COLLOPS_")}
    running = [
        subprocess.Popen(
            [sys.executable, path, method, str(number)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number in (7, 8)
    ]
    printed = [program.communicate(timeout=patience(60))[0].strip() for program in running]
    assert printed == ["True [0, 7, 1, 7]", "True [0, 8, 1, 8]"]
