"""collops.init(job_id=...): ranks that have agreed on their job by other means."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience

LAUNCHERS = ("RANK", "WORLD_SIZE", "COLLOPS_JOB_ID", "COLLOPS_RANK", "COLLOPS_RANK_SIZE")


def gathered(comm: collops.Communicator, value: int) -> list[int]:
    """The values of all ranks."""
    return [int(x) for x in comm.all_gatherv(np.array([value]))]


def test_ranks_that_no_launcher_names_meet() -> None:
    def work(rank: int) -> list[int]:
        for name in LAUNCHERS:
            os.environ.pop(name, None)
        return gathered(collops.init(1 - rank, 2, job_id="met/in a store"), rank)

    assert run_ranks(work, 2) == [[1, 0]] * 2


@pytest.mark.parametrize("threads", [False, True])
def test_jobs_with_one_domain_are_apart(threads: bool) -> None:
    def work(rank: int) -> list[Any]:
        mode: dict[str, Any] = {"comm_mode": 1} if threads else {}
        pair, place = divmod(rank, 2)
        mine = collops.init(place, 2, job_id=f"pair {pair}", **mode)
        other = collops.init(pair, 2, job_id=f"column {place}", **mode)
        whole = collops.init(rank, 4, **mode)
        again = collops.init(place, 2, job_id=f"pair {pair}", **mode)
        found = [gathered(comm, rank) for comm in (mine, other, whole)]
        return [*found, again is mine]

    assert run_ranks(work, 4, threads=threads) == [
        [[0, 1], [0, 2], [0, 1, 2, 3], True],
        [[0, 1], [1, 3], [0, 1, 2, 3], True],
        [[2, 3], [0, 2], [0, 1, 2, 3], True],
        [[2, 3], [1, 3], [0, 1, 2, 3], True],
    ]


def test_a_launcher_of_several_hosts_says_nothing_about_it() -> None:
    def work(rank: int) -> list[Any]:
        os.environ.update(
            TORCHELASTIC_RUN_ID="x", MASTER_ADDR="192.0.2.1", LOCAL_WORLD_SIZE="2", WORLD_SIZE="4"
        )
        os.environ.update(RANK=str(rank + 2), COLLOPS_RANK="", COLLOPS_RANK_SIZE="")
        comm = collops.init(rank, 2, job_id="the second host", timeout_s=patience(20))
        return [comm.backend, *gathered(comm, rank)]

    assert run_ranks(work, 2) == [["shm", 0, 1]] * 2


def test_such_a_group_splits() -> None:
    def work(rank: int) -> list[int]:
        part = collops.init(rank, 3, job_id="to split").split(rank % 2)
        assert part is not None
        return gathered(part, rank)

    assert run_ranks(work, 3) == [[0, 2], [1], [0, 2]]


def test_a_rank_table_of_the_environment_says_nothing_about_it(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    ranks = [{"device_id": str(r), "rank_id": str(r), "device_ip": f"1.0.0.{r}"} for r in range(3)]
    table.write_text(
        json.dumps(
            {
                "version": "1.0",
                "server_count": "1",
                "status": "completed",
                "server_list": [{"server_id": "127.0.0.1", "device": ranks}],
            }
        )
    )

    def work(rank: int) -> list[int]:
        os.environ.update(RANK_TABLE_FILE=str(table), RANK_ID=str(rank), RANK_SIZE="3")
        if rank == 0:
            return []
        return gathered(collops.init(2 - rank, 2, job_id="the last two"), rank)

    assert run_ranks(work, 3) == [[], [2, 1], [2, 1]]


def test_the_job_is_named_where_a_rank_does_not_come() -> None:
    def work(rank: int) -> str:
        with pytest.raises(collops.RankTimeoutError) as caught:
            collops.init(rank, 2, job_id=f"mine {rank}", timeout_s=0.5)
        return caught.value.message

    for rank, message in enumerate(run_ranks(work, 2)):
        assert f"rank {1 - rank} of 2 did not connect" in message
        assert f"agreed/mine {rank}, from init's job_id" in message


def test_what_a_job_id_must_be() -> None:
    with pytest.raises(collops.Error, match="job_id must be a str, got 7"):
        collops.init(0, 1, job_id=7)  # type: ignore[arg-type]
    assert collops.init(0, 1, job_id="x" * 4000).size == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"meet_at": "10.0.0.1:1"}, "meet_at is '10.0.0.1:1' without a job_id: pass that"),
        ({"meet_at": 5, "job_id": "x"}, "meet_at must be a str, got 5"),
        (
            {"meet_at": "10.0.0.1:1", "job_id": "x", "backend": "shm"},
            "backend shm runs on one host, but meet_at says that the ranks are on several",
        ),
    ],
)
def test_what_meet_at_must_be(words: dict[str, Any], message: str) -> None:
    with pytest.raises(collops.Error) as caught:
        collops.init(0, 2, **words)
    assert message in str(caught.value)
