"""Ranks that collops starts on this host meet each other, whatever job this process belongs to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import collops
from collops.cli import main
from collops.cli.run import one_host
from collops.launch.environment import FOREIGN
from collops.launch.rank_table import make_rank_table
from collops.testing import run_ranks
from patience import patience
from tests import programs

ROOT = Path(__file__).resolve().parents[3]
# Of documentation (RFC 5737): it is no host's, and packets to it arrive nowhere.
AWAY = "192.0.2.1"
OUTER = {
    "torchrun": {
        "TORCHELASTIC_RUN_ID": "outer",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "RANK": "5",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
    },
    "Open MPI": {
        "PMIX_NAMESPACE": "outer",
        "OMPI_COMM_WORLD_RANK": "5",
        "OMPI_COMM_WORLD_SIZE": "8",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    },
    "Slurm": {
        "SLURM_JOB_ID": "12",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": "5",
        "SLURM_NTASKS": "8",
        "SLURM_NNODES": "4",
    },
    "nobody": {},
}


@pytest.fixture(params=OUTER)
def outer_job(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """This process is a rank of a job on other hosts."""
    table = tmp_path / "ranks.json"
    table.write_text(make_rank_table([AWAY, "192.0.2.2"], 1), encoding="utf-8")
    outer = {"MASTER_ADDR": AWAY, "MASTER_PORT": "29500", "RANK_TABLE_FILE": str(table)}
    for name, value in (outer | {"RANK_ID": "1", "RANK_SIZE": "2"} | OUTER[request.param]).items():
        monkeypatch.setenv(name, value)


def gathered(rank: int, backend: str | None) -> list[int]:
    """What the ranks of a job of two tell each other."""
    import numpy as np

    with collops.init(backend=backend, timeout_s=patience(10)) as comm:
        assert (comm.rank, comm.size) == (rank, 2)
        return [int(row) for row in comm.all_gatherv(np.full(1, rank))]


@pytest.fixture
def ucx() -> str:
    """The backend, where it can be had."""
    [reason] = run_ranks(_why_not, 1)
    if reason:
        pytest.skip(reason)
    return "ucx"


def _why_not(rank: int) -> str:
    from collops.core import core

    return next(reason for name, reason, _, _ in core().backends() if name == "ucx")


@pytest.mark.usefixtures("outer_job")
@pytest.mark.parametrize("backend", [None, "shm"])
def test_ranks_of_run_ranks_meet(backend: str | None) -> None:
    assert run_ranks(gathered, 2, backend) == [[0, 1], [0, 1]]


@pytest.mark.usefixtures("outer_job")
def test_ranks_of_run_ranks_meet_on_ucx(ucx: str) -> None:
    assert run_ranks(gathered, 2, ucx) == [[0, 1], [0, 1]]


@pytest.mark.usefixtures("outer_job")
def test_ranks_of_golden_run_meet(ucx: str) -> None:
    file = ROOT / "examples" / "golden" / "send.csv"
    words = ["golden", "run", str(file), "--backend", ucx, "--timeout", "10", "--filter", "1-3"]
    done = programs.run_forked(main, words, timeout=patience(100))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


@pytest.mark.usefixtures("outer_job", "ucx")
def test_ranks_of_a_benchmark_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLOPS_TIMEOUT_S", "10")
    words = ["bench", "all_gather_v", "--quick", "--peers", "none", "--sizes", "1k"]
    done = programs.run_forked(main, [*words, "--iterations", "1"], timeout=patience(100))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 ranks on 1 host" in done.stdout


@pytest.mark.usefixtures("outer_job")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_variables_of_the_ranks(method: str) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", *FOREIGN)
    places = run_ranks(_variables, 2, names, start_method=method)
    assert [place[:4] for place in places] == [["0", "2", "0", "2"], ["1", "2", "1", "2"]]
    assert places[0][4:] == [None] * len(FOREIGN)


def _variables(rank: int, names: tuple[str, ...]) -> list[str | None]:
    return [os.environ.get(name) for name in names]


@pytest.mark.usefixtures("outer_job")
def test_a_table_that_is_passed_to_the_ranks_is_theirs() -> None:
    path = os.environ["RANK_TABLE_FILE"]
    assert run_ranks(_variables, 1, ("RANK_TABLE_FILE",), env={"RANK_TABLE_FILE": path}) == [[path]]


@pytest.mark.usefixtures("outer_job")
def test_ranks_of_collops_run_have_no_table() -> None:
    for environment in one_host(2):
        assert not set(FOREIGN) & set(environment)
        assert environment["MASTER_ADDR"] == "127.0.0.1"
