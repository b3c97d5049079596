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
from collops.testing import RankErrors, run_ranks
from patience import patience

PLACE = ("COLLOPS_RANK", "COLLOPS_RANK_SIZE", "RANK", "WORLD_SIZE")


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


def test_a_wrong_handle_is_an_error() -> None:
    for number in (12345, 2**63):
        with pytest.raises(collops.Error, match="not an open communicator") as caught:
            collops.Operation(collops.AllGatherVParam(hccl_comm=number, rank_size=2, backend="shm"))
        assert caught.value.code == 1


def test_arguments_come_before_the_launcher() -> None:
    def work(rank: int) -> list[int]:
        comm = collops.init(1 - rank, 2)
        return [comm.rank, *comm.all_gatherv(np.array([10 * rank]))]

    assert run_ranks(work, 2) == [[1, 10, 0], [0, 10, 0]]


def test_a_rank_that_nothing_sets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PLACE:
        monkeypatch.delenv(name, raising=False)
    error = error_of()
    assert error.code == 1
    assert "pass rank and rank_size" in error.message
    assert "COLLOPS_RANK" in error.message
    assert "process's rank_size: start it with" in error_of(0).message


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((0, 0), "rank_size must be at least 1, got 0"),
        ((2, 2), "rank must be from 0 to 1, got 2"),
        ((-3, 2), "rank must be from 0 to 1, got -3"),
        ((-1, 2), "rank must be from 0 to 1, got -1"),
        ((0, -1), "rank_size must be at least 1, got -1"),
        ((0.5, 2), "rank must be a whole number, got 0.5"),
        ((0, "2"), "rank_size must be a whole number, got '2'"),
    ],
)
def test_a_wrong_place(args: tuple[Any, Any], message: str) -> None:
    error = error_of(*args)
    assert (error.code, error.message) == (1, f"init: {message}")


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan"), float("inf")])
def test_a_wrong_timeout(timeout_s: float) -> None:
    assert (
        "timeout_s must be a number of seconds above 0"
        in error_of(0, 1, timeout_s=timeout_s).message
    )


def test_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert error_of(0, 1, backend="smh").code == 1
    error = error_of(0, 1, backend="hccl")
    assert isinstance(error, NotImplementedError)
    assert "libhccl.so" in error.message
    monkeypatch.setenv("COLLOPS_BACKEND", "hccl=shm")
    with collops.init(0, 1, backend="hccl") as comm:
        assert "backend shm" in repr(comm)


def test_a_live_domain_keeps_its_size() -> None:
    with collops.init(0, 1, comm_domain="tp"):
        error = error_of(0, 2, comm_domain="tp")
    assert error.code == 1
    assert "communicator of 1 rank (comm_domain" in error.message


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


def test_a_rank_that_never_comes_is_named() -> None:
    error = error_of(0, 2, timeout_s=0.3)
    assert isinstance(error, TimeoutError)
    assert "rank 1" in error.message


def test_ranks_that_disagree_about_their_number() -> None:
    def work(rank: int) -> int:
        if rank == 2:
            return 102
        with pytest.raises(collops.Error) as caught:
            collops.init(rank, 2 + rank, timeout_s=patience(10))
        return caught.value.code

    assert run_ranks(work, 3) == [102, 102, 102]


@pytest.mark.parametrize("threads", [False, True])
def test_more_ranks_than_were_started(threads: bool) -> None:
    def work(rank: int) -> tuple[int, bool]:
        error = error_of(rank, 3, timeout_s=patience(20))
        started = "run_ranks has started 2 threads" if threads else "COLLOPS_RANK_SIZE is 2: "
        return error.code, f"rank_size is 3, but {started}" in error.message

    start = time.monotonic()
    assert run_ranks(work, 2, threads=threads) == [(1, True)] * 2
    assert time.monotonic() - start < patience(10)


def test_a_struct_for_more_ranks_than_were_started() -> None:
    def work(rank: int) -> str:
        with pytest.raises(collops.ArgumentError) as caught:
            collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=3, backend="shm"))
        return caught.value.message

    for message in run_ranks(work, 2):
        assert "rankSize is 3, but COLLOPS_RANK_SIZE is 2: pass at most 2" in message


def test_a_passed_rank_is_not_called_the_launchers() -> None:
    def work(rank: int) -> tuple[str, str]:
        return error_of(-1, 2).message, error_of(0, -1).message

    wrong = ("init: rank must be from 0 to 1, got -1", "init: rank_size must be at least 1, got -1")
    assert run_ranks(work, 2) == [wrong] * 2


def test_a_rank_claimed_twice() -> None:
    def work(rank: int) -> str:
        collops.init(comm_domain="start").barrier()
        with pytest.raises(collops.RankMismatchError) as caught:
            # Rank 2 of 3 never comes: nobody can complete the meeting without the third process.
            collops.init(0 if rank < 2 else 1, 3, timeout_s=patience(10))
        return caught.value.message

    for message in run_ranks(work, 3):
        assert message.count("pid") >= 2


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


def test_a_forked_child_does_not_speak_for_its_parent() -> None:
    def work(rank: int) -> list[int]:
        comm = collops.init()
        child = os.fork()
        if child == 0:
            try:
                comm.barrier()
            except collops.Error as error:
                os._exit(0 if error.code == 1 else 3)
            os._exit(4)
        status = os.waitpid(child, 0)[1]
        return [status, *comm.all_gatherv(np.array([rank]))]

    assert run_ranks(work, 2) == [[0, 0, 1]] * 2


def test_the_first_failure_reaches_run_ranks() -> None:
    def work(rank: int) -> None:
        comm = collops.init()
        if rank == 1:
            raise ValueError("the reason")
        comm.barrier()

    with pytest.raises(RankErrors) as caught:
        run_ranks(work, 2)
    errors = caught.value.errors
    assert isinstance(errors[1], ValueError)
    assert isinstance(errors[0], collops.PeerLostError)
    assert "the reason" in str(errors[0])
