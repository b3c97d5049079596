"""collops.testing.ranks: a user's test file, run by a pytest of its own."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

import collops
from collops.testing import ranks
from patience import patience

USERS_FILE = """
import os
import numpy as np
import pytest
import collops
from collops.testing import ranks

BOTH = (collops.COMM_MULTI_PROCESS, collops.COMM_MULTI_THREAD)
STARTED_BY = os.getpid()


@pytest.fixture
def rows():
    return [3, 0, 2, 1]


@pytest.fixture
def changed():
    seen = []
    yield seen
    assert seen == []


@ranks(2, 4, comm_modes=BOTH)
@pytest.mark.parametrize("width", [1, 5])
def test_passes(comm, rows, width, rank_size, comm_mode, tmp_path):
    assert os.getpid() != STARTED_BY
    assert comm.size == rank_size
    assert tmp_path.is_dir()
    x = np.full((rows[comm.rank], width), comm.rank)
    assert comm.all_gatherv(x).shape == (sum(rows[:comm.size]), width)
    param = collops.AllGatherVParam(
        rank=comm.rank, rank_size=rank_size, backend="shm", comm_mode=comm_mode)
    assert collops.Operation(param).name == "AllGatherV"


class TestInAClass:
    @pytest.mark.parametrize("k", [1])
    @ranks(3)
    def test_passes_too(self, comm, k):
        comm.barrier()


@ranks(2)
def test_keeps_fixtures_apart(comm, changed):
    changed.append(comm.rank)


@ranks(3, comm_modes=BOTH)
def test_fails_on_two_ranks(comm):
    assert comm.rank == 1, "not the middle one"


@ranks(2)
def test_one_rank_stays_away(comm):
    if comm.rank == 0:
        raise KeyError("lost")
    comm.barrier()


@ranks(2, comm_modes=BOTH)
def test_skips(comm):
    pytest.skip("not today")


@ranks(2)
def test_skips_on_one_rank(comm):
    if comm.rank == 1:
        pytest.skip("only here")


@ranks(2)
def test_is_expected_to_fail(comm):
    pytest.xfail("known")


@ranks(2, timeout=3)
def test_takes_too_long(comm):
    import time
    if comm.rank == 1:
        time.sleep(30)


@ranks(2, env={"COLOUR": "blue"})
def test_environment(comm):
    assert os.environ["COLOUR"] == "blue"
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest prints for the user's file."""
    folder = tmp_path_factory.mktemp("users")
    (folder / "test_users.py").write_text(USERS_FILE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-rsx", "-p", "no:cacheprovider", "test_users.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patience(100),
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        *((f"test_passes[{width}-{case}]", "PASSED") for width in (1, 5) for case in ("2", "4")),
        *((f"test_passes[{width}-{size}-threads]", "PASSED") for width in (1, 5) for size in "24"),
        ("TestInAClass::test_passes_too[3-1]", "PASSED"),
        ("test_keeps_fixtures_apart[2]", "PASSED"),
        ("test_fails_on_two_ranks[3]", "FAILED"),
        ("test_fails_on_two_ranks[3-threads]", "FAILED"),
        ("test_one_rank_stays_away[2]", "FAILED"),
        ("test_skips[2]", "SKIPPED"),
        ("test_skips[2-threads]", "SKIPPED"),
        ("test_skips_on_one_rank[2]", "FAILED"),
        ("test_is_expected_to_fail[2]", "XFAIL"),
        ("test_takes_too_long[2]", "FAILED"),
        ("test_environment[2]", "PASSED"),
    ],
)
def test_outcomes(report: str, test: str, outcome: str) -> None:
    assert f"test_users.py::{test} {outcome}" in report, report


def failure_of(report: str, test: str) -> str:
    """The part of the report on one failed test."""
    match = re.search(rf"^_+ {re.escape(test)} _+$(.*?)^(_{{5}}|={{5}})", report, re.M | re.S)
    assert match is not None, report
    return match[1]


@pytest.mark.parametrize("case", ["3", "3-threads"])
def test_a_failure_shows_every_ranks_traceback(report: str, case: str) -> None:
    failure = failure_of(report, f"test_fails_on_two_ranks[{case}]")
    assert "ranks 0, 2 failed" in failure
    for rank in (0, 2):
        assert f"--- rank {rank} ---" in failure
        assert f"assert {rank} == 1" in failure  # pytest explains it as in any test
    assert failure.count('assert comm.rank == 1, "not the middle one"') == 2


def test_the_other_ranks_say_whom_they_missed(report: str) -> None:
    failure = failure_of(report, "test_one_rank_stays_away[2]")
    assert "KeyError: 'lost'" in failure
    assert "PeerLostError: barrier: call 1 failed: rank 0 " in failure


def test_ranks_must_skip_together(report: str) -> None:
    failure = failure_of(report, "test_skips_on_one_rank[2]")
    assert "ranks [1] skipped the test, the others did not" in failure


@ranks(2, 3, comm_modes=(collops.COMM_MULTI_PROCESS, collops.COMM_MULTI_THREAD))
def test_ranks_marks_tests_of_this_repository(comm: collops.Communicator, rank_size: int) -> None:
    assert comm.all_gatherv(np.array([comm.rank])).tolist() == list(range(rank_size))
