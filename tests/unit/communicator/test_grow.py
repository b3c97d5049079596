"""grow and init(join=): who is in the new group, and what is left where nobody comes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from multiprocessing import Semaphore
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collops
from collops.launch.rank_table import make_rank_table
from collops.testing import run_ranks
from patience import patience

MODES = pytest.mark.parametrize("threads", [False, True], ids=["processes", "threads"])
JOIN_S = patience(30.0)


def told(run: Any) -> str:
    """The error of a call: its name and its message."""
    try:
        run()
    except collops.Error as error:
        return f"{error.name} {error.message}"
    return ""


def check(comm: collops.Communicator) -> int:
    """Adds numbers that differ per rank and place, also from a window, and uses a part."""
    ranks = range(comm.size)
    window = comm.empty(1000, np.int64)
    window[:] = np.arange(1000) + 7 * comm.rank
    want = sum(np.arange(1000) + 7 * rank for rank in ranks)
    assert np.array_equal(comm.all_reduce(window), want)
    assert np.array_equal(comm.all_reduce(np.array(window)), want)
    assert comm.all_gatherv(np.full(comm.rank + 1, comm.rank)).tolist() == [
        rank for rank in ranks for _ in range(rank + 1)
    ]
    part = comm.split(comm.rank % 2)
    assert part is not None and part.size == len(ranks[comm.rank % 2 :: 2])
    assert comm.old_ranks == ()
    return comm.size


@MODES
@pytest.mark.parametrize(("members", "new"), [(1, 1), (2, 2), (3, 1)])
def test_members_and_new_processes_go_on(threads: bool, members: int, new: int) -> None:
    def work(process: int) -> Any:
        if process >= members:
            comm = collops.init(join="dp", timeout_s=JOIN_S)
            assert (comm.timeout_s, comm.rank >= members) == (JOIN_S, True)
        else:
            old = collops.init(process, members, comm_domain="dp", timeout_s=JOIN_S + 1)
            window = old.empty(10, np.int64)
            window[:] = process
            started = old.start("all_reduce", window)
            comm = old.grow(new)
            assert (comm.rank, comm.timeout_s) == (process, JOIN_S + 1)
            assert started.wait().tolist() == [sum(range(members))] * 10  # it ran before
            assert "this communicator has ended" in told(old.barrier)
            assert window.tolist() == [process] * 10
        assert check(comm) == members + new
        # The domain is the new one's from now on; structs use it.
        again = collops.init(comm.rank, comm.size, comm_domain="dp")
        assert again.handle == comm.handle
        one = np.array([1])
        param = collops.AllGatherVParam(
            rank=comm.rank,
            rank_size=comm.size,
            backend="shm",
            comm_domain="dp",
            comm_mode=int(threads),
        )
        x = np.full((1, 3), comm.rank, np.float32)
        counts, begins = np.full(comm.size, 3), np.arange(comm.size) * 3
        ins = [x, one * 3, counts, begins, np.empty(comm.size, np.float16)]
        [out] = collops.Operation(param).forward(ins)
        return comm.rank, out[:, 0].tolist()

    results = run_ranks(work, members + new, threads=threads)
    everyone = list(range(members + new))
    assert sorted(rank for rank, _ in results) == everyone
    assert [rank for rank, _ in results[:members]] == everyone[:members]
    assert all(gathered == everyone for _, gathered in results)


@MODES
def test_nobody_comes_and_then_one_does(threads: bool) -> None:
    have_heard = Semaphore(0)

    def work(process: int) -> Any:
        if process == 2:
            assert all(have_heard.acquire(timeout=JOIN_S) for _ in range(2))
            return check(collops.init(join="dp", timeout_s=JOIN_S))
        comm = collops.init(process, 2, comm_domain="dp")
        heard = told(lambda: comm.grow(1, timeout_s=0.1 + process))  # the least counts
        assert heard.startswith(
            "ERROR_TIMEOUT grow: 0 of 1 new process came within 0.1 s; this group is as it was. "
            'A new process calls collops.init(join="dp", backend="shm"'
            + (", comm_mode=1) in this process" if threads else ") with COLLOPS_JOB_ID=")
        )
        have_heard.release()
        assert comm.all_reduce(np.array([process])).tolist() == [1]
        return check(comm.grow(1, timeout_s=JOIN_S))

    assert run_ranks(work, 3, threads=threads) == [3, 3, 3]


def test_an_agreed_place() -> None:
    """One rank alone, of a backend of several hosts; it says what the new process is to call."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{probe.getsockname()[1]}"
    agreed = {"job_id": "mine", "meet_at": place}

    def work(process: int) -> int:
        if process == 1:
            return check(collops.init(join="dp", timeout_s=JOIN_S, **agreed))
        comm = collops.init(0, 1, comm_domain="dp", **agreed)
        assert told(lambda: comm.grow(2, timeout_s=0.1)).endswith(
            ' A new process calls collops.init(join="dp", backend="ucx", job_id="mine", '
            f'meet_at="{place}")'
        )
        return check(comm.grow(1, timeout_s=JOIN_S))

    assert run_ranks(work, 2) == [2, 2]


@pytest.mark.parametrize(
    ("address", "rank", "code", "reason"),
    [
        (
            "node-a",
            "0",
            "UNSUPPORTED",
            'MASTER_ADDR is "node-a": set it to an address of this host, in numbers',
        ),
        (
            "192.0.2.77",
            "1",
            "UNSUPPORTED",
            "MASTER_ADDR is the host of the launch's rank 0, which it is not: pass init a job_id, "
            "and an address of this host in meet_at",
        ),
        ("192.0.2.77", "0", "RT_FAIL", "cannot listen at 192.0.2.77"),
    ],
)
def test_one_rank_alone_that_others_cannot_reach(
    monkeypatch: pytest.MonkeyPatch, address: str, rank: str, code: str, reason: str
) -> None:
    def work(_: int) -> str:
        launch = {"MASTER_ADDR": address, "COLLOPS_RANK": rank, "COLLOPS_RANK_SIZE": "2"}
        for name, value in launch.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("LOCAL_WORLD_SIZE")
        comm = collops.init(0, 1, backend="ucx", comm_domain="dp")
        return told(lambda: comm.grow(1, timeout_s=JOIN_S))

    [refused] = run_ranks(work, 1, threads=False)
    begin = f"ERROR_{code} grow: this rank was alone, and others cannot reach it: {reason}"
    assert refused.startswith(begin), refused


def test_a_group_that_is_smaller_than_the_rank_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is of two hosts, the group of one: a new process passes the backend as logged."""
    table = tmp_path / "ranks.json"
    table.write_text(make_rank_table(["a", "b"], 2), encoding="utf-8")
    monkeypatch.setenv("COLLOPS_SERVER_ID", "a")

    def work(process: int) -> int:
        monkeypatch.setenv("RANK_TABLE_FILE", str(table))
        for name in ("COLLOPS_JOB_ID", "COLLOPS_RANK", "COLLOPS_RANK_SIZE"):
            monkeypatch.delenv(name)
        if process == 2:
            return check(collops.init(join="dp", backend="shm", timeout_s=JOIN_S))
        monkeypatch.setenv("RANK_ID", str(process))
        comm = collops.init(process, 2, comm_domain="dp")
        assert told(lambda: comm.grow(2, timeout_s=0.1)).endswith(
            'collops.init(join="dp", backend="shm") with this job\'s rank table in RANK_TABLE_FILE'
        )
        return check(comm.grow(1, timeout_s=JOIN_S))

    assert run_ranks(work, 3) == [3, 3, 3]


def test_a_new_process_of_a_rank_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table does not say which rank it is."""
    table = tmp_path / "ranks.json"
    table.write_text(make_rank_table(["a"], 2), encoding="utf-8")
    monkeypatch.setenv("COLLOPS_SERVER_ID", "a")

    def work(process: int) -> int:
        monkeypatch.setenv("RANK_TABLE_FILE", str(table))
        for name in ("COLLOPS_JOB_ID", "COLLOPS_RANK", "COLLOPS_RANK_SIZE"):
            monkeypatch.delenv(name)
        if process == 2:
            return check(collops.init(join="dp", timeout_s=JOIN_S))
        monkeypatch.setenv("RANK_ID", str(process))
        comm = collops.init(comm_domain="dp")
        assert told(lambda: comm.grow(2, timeout_s=0.1)).endswith(
            " with this job's rank table in RANK_TABLE_FILE"
        )
        return check(comm.grow(1, timeout_s=JOIN_S))

    assert run_ranks(work, 3) == [3, 3, 3]


def test_more_come_than_are_awaited() -> None:
    """The next growing takes the others."""

    def work(process: int) -> Any:
        if process < 1:
            comm = collops.init(0, 1, comm_domain="dp")
            for _ in range(3):
                comm = comm.grow(1, timeout_s=JOIN_S)
        else:
            comm = collops.init(join="dp", timeout_s=JOIN_S)
            while comm.size < 4:
                comm = comm.grow(1, timeout_s=JOIN_S)
        return check(comm)

    assert run_ranks(work, 4) == [4] * 4


def test_members_that_await_different_numbers() -> None:
    def work(process: int) -> str:
        comm = collops.init()
        heard = told(lambda: comm.grow([1, 1, 2][process]))
        assert comm.all_reduce(np.array([process])).tolist() == [3]
        return heard

    for heard in run_ranks(work, 3):
        assert heard.startswith("ERROR_RANK_MISMATCH grow: n is 1 on rank 0 (pid ")
        assert ") and 2 on rank 2 (pid " in heard


def test_wrong_arguments() -> None:
    def work(rank: int) -> list[str]:
        comm = collops.init(comm_domain="dp")
        calls = [
            lambda: comm.grow(0),
            lambda: comm.grow(127),
            lambda: comm.grow("one"),  # type: ignore[arg-type]
        ]
        heard = [told(call if rank == 1 else lambda: comm.grow(1)) for call in calls]
        comm.barrier()  # it is as it was
        heard += [
            told(lambda: comm.grow(1, timeout_s=0)),
            told(lambda: collops.init(join="dp")),
            told(lambda: collops.init(0, join="pp")),
            told(lambda: collops.init(join="pp", tuning="streamed_output=1m")),
            told(lambda: collops.init(join="p" * 129)),
            told(lambda: collops.init(join="pp", backend="shm", job_id="j", meet_at="10.0.0.1:1")),
        ]
        return heard

    zero, one = run_ranks(work, 2)
    limit = "ERROR_INVALID_PARAM grow: n must be from 1 to 126, got "
    assert one == [
        f"{limit}0",
        f"{limit}127",
        "ERROR_INVALID_PARAM grow: n must be a whole number, got 'one'",
        "ERROR_INVALID_PARAM grow: timeout_s must be a number of seconds above 0, got 0",
        'ERROR_INVALID_PARAM init: this process already has a communicator of comm_domain "dp", as '
        "rank 1: only another process can join it",
        "ERROR_INVALID_PARAM init: rank is 0 beside join='pp': pass join alone, a new process gets "
        "its rank and all else from the group that it joins",
        "ERROR_INVALID_PARAM init: tuning is 'streamed_output=1m' beside join='pp': pass join "
        "alone, a new process gets its rank and all else from the group that it joins",
        "ERROR_INVALID_PARAM init: comm_domain has 129 characters, the limit is 128",
        "ERROR_UNSUPPORTED init: backend shm runs on one host, but meet_at says that the ranks are "
        "on several",
    ]
    for mine, theirs in zip(zero[:3], one[:3], strict=True):
        assert mine.startswith("ERROR_RANK_MISMATCH grow: rank 1 (pid ")
        assert mine.endswith(theirs.partition(" ")[2])


def test_another_job_does_not_join() -> None:
    def work(process: int) -> str:
        if process == 1:
            return told(lambda: collops.init(join="dp", job_id="another", timeout_s=0.5))
        comm = collops.init(0, 1, comm_domain="dp")
        return told(lambda: comm.grow(1, timeout_s=1.0))

    member, new = run_ranks(work, 2)
    assert member.startswith("ERROR_TIMEOUT grow: 0 of 1 new process came within 1 s; ")
    assert new == (
        'ERROR_TIMEOUT init: no group of comm_domain "dp" (job agreed/another, from init\'s '
        "job_id), backend shm, called comm.grow() within 0.5 s. Does it run, in the same job and "
        "network namespace, with this comm_domain? comm.grow() logs the call and the variables of "
        "a new process"
    )


def test_lose_one_and_take_one_back_again_and_again() -> None:
    def work(process: int) -> Any:
        comm = (
            collops.init(join="dp", timeout_s=JOIN_S)
            if process >= 3
            else collops.init(process, 3, comm_domain="dp")
        )
        round_ = 0
        if process >= 3:
            check(comm)
        while True:
            # A new one does not know which round it is.
            round_ = int(comm.all_reduce(np.array([round_]), op="max")[0])
            if round_ == 10:
                return "end"
            # The rank that leaves is another one each time, rank 0 too.
            if comm.rank == round_ % 3:
                comm.close()
                return round_
            with pytest.raises(collops.PeerLostError):
                comm.barrier()
            comm = comm.shrink().grow(1, timeout_s=JOIN_S)
            assert check(comm) == 3
            round_ += 1

    results = run_ranks(work, 13)
    assert sorted(result for result in results if result != "end") == list(range(10))


UNIQUE = str(os.getpid())


@pytest.mark.parametrize(
    ("launch", "name"),
    [
        ({"COLLOPS_JOB_ID": UNIQUE}, UNIQUE),
        (
            {"TORCHELASTIC_RUN_ID": UNIQUE, "MASTER_ADDR": "h", "MASTER_PORT": "1"},
            f"torchrun/h/1//{UNIQUE}",
        ),
        ({"SLURM_JOB_ID": UNIQUE, "SLURM_STEP_ID": "0"}, f"slurm/{UNIQUE}/0"),
    ],
    ids=["named", "torchrun", "Slurm"],
)
def test_a_program_that_is_started_by_hand(launch: dict[str, str], name: str) -> None:
    """As a user types it: with the job's name alone, which the group says."""
    # The group is larger than its launch, and so may be what it makes, and another domain.
    program = (
        "import collops\n{}\nall = c.split(0); "
        "other = collops.init(c.rank, c.size, comm_domain='tp'); "
        "print(c.rank, c.size, c.barrier(), all.size, other.size)"
    )
    member = program.format(
        "c = collops.init(0, 1, comm_domain='dp')\ntry: c.grow(2, timeout_s=0.1)\n"
        "except collops.Error as e: print(e.message.rpartition(' ')[2])\n"
        f"c = c.grow(1, timeout_s={JOIN_S})"
    )
    new = program.format(f"c = collops.init(join='dp', timeout_s={JOIN_S})")
    # A started process has the variables of its launch, which do not count.
    env = {**os.environ, "COLLOPS_RANK": "0", "COLLOPS_RANK_SIZE": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", text], env=env | variables, stdout=subprocess.PIPE, text=True
        )
        for text, variables in ((member, launch), (new, {"COLLOPS_JOB_ID": name}))
    ]
    said = [process.communicate(timeout=patience(60))[0] for process in processes]
    assert said == [f"COLLOPS_JOB_ID={name}\n0 2 None 2 2\n", "1 2 None 2 2\n"]


def test_ucx_on_one_host() -> None:
    def work(process: int) -> Any:
        if process == 2:
            return check(collops.init(join="dp", backend="ucx", timeout_s=JOIN_S))
        comm = collops.init(process, 2, comm_domain="dp", backend="ucx")
        return check(comm.grow(1, timeout_s=JOIN_S))

    assert run_ranks(work, 3) == [3, 3, 3]
