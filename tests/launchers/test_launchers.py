"""Every launcher for real: two jobs at once with the same commDomains never meet."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
RANKS = 3
PMI = "MPICH or Intel MPI"
# By what it shows: the environment it needs, what the library calls the launcher, and the command
# before the program's own words.
WAYS = {
    "Open MPI": (
        "openmpi",
        "Open MPI",
        f"mpirun --allow-run-as-root --oversubscribe -n {RANKS} PYTHON",
    ),
    "MPICH": ("mpich", PMI, f"mpirun -n {RANKS} PYTHON"),
    "MPICH, mpiexec.gforker": ("mpich", PMI, f"mpiexec.gforker -n {RANKS} PYTHON"),
    "Intel MPI": ("intel-mpi", PMI, f"mpirun -n {RANKS} PYTHON"),
    "Intel MPI, mpiexec.hydra": ("intel-mpi", PMI, f"mpiexec.hydra -n {RANKS} PYTHON"),
    "torchrun": ("torchrun", "torchrun", f"torchrun --standalone --nproc-per-node {RANKS}"),
    "simulated Slurm step": ("plain", "Slurm", f"sh HERE/simulated_srun.sh {RANKS} PYTHON"),
}
# A shell in between, which ends after the rank: the launcher is not the rank's parent.
IN_A_SHELL = ["sh", "-c", '"$@"; exit $?', "sh"]


def expect_two_whole_jobs(jobs: dict[str, Any], launcher: str) -> None:
    """Both ended well, with every rank, and what they were started in told nothing apart."""
    for token in "AB":
        expected = [f"ok {token} rank {rank} of {RANKS} under {launcher}" for rank in range(RANKS)]
        outcome = (jobs[token].status, jobs[token].lines)
        assert outcome == (0, expected), jobs["A"].said + jobs["B"].said
    assert jobs["A"].group == jobs["B"].group


def words_of(command: str, python: Path) -> list[str]:
    """The words of a row of WAYS."""
    known = {"PYTHON": str(python)}
    return [known.get(word, word.replace("HERE", str(HERE))) for word in command.split()]


@pytest.mark.parametrize("way", WAYS)
def test_two_jobs_of_one_shell_never_meet(
    way: str, place: Callable[[str], Any], two_jobs: Callable[..., Any], tmp_path: Path
) -> None:
    environment, launcher, command = WAYS[way]
    found = place(environment)
    program = [HERE / "rank_program.py", str(RANKS), "2", tmp_path]
    jobs = two_jobs(found, *words_of(command, found.python), *program)
    expect_two_whole_jobs(jobs, launcher)


@pytest.mark.parametrize("way", ["MPICH", "MPICH, mpiexec.gforker", "Intel MPI"])
def test_a_shell_between_launcher_and_rank(
    way: str, place: Callable[[str], Any], two_jobs: Callable[..., Any], tmp_path: Path
) -> None:
    environment, launcher, command = WAYS[way]
    found = place(environment)
    words = words_of(command, found.python)
    program = [HERE / "rank_program.py", str(RANKS), "2", tmp_path]
    jobs = two_jobs(found, *words[:-1], *IN_A_SHELL, words[-1], *program)
    expect_two_whole_jobs(jobs, launcher)


@pytest.mark.parametrize("way", ["Open MPI", "MPICH", "MPICH, mpiexec.gforker", "Intel MPI"])
def test_two_jobs_inside_a_rank_of_the_same_launcher(
    way: str, place: Callable[[str], Any], two_jobs: Callable[..., Any], tmp_path: Path
) -> None:
    environment, launcher, command = WAYS[way]
    found = place(environment)
    outer = command.replace(f"-n {RANKS} PYTHON", "-n 1")
    program = [HERE / "rank_program.py", str(RANKS), "2", tmp_path]
    jobs = two_jobs(found, *words_of(command, found.python), *program, outer=outer)
    expect_two_whole_jobs(jobs, launcher)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_two_families_of_plain_multiprocessing_never_meet(
    method: str, place: Callable[[str], Any], two_jobs: Callable[..., Any], tmp_path: Path
) -> None:
    found = place("plain")
    program = [HERE / "family_program.py", method, str(RANKS), "2", tmp_path]
    expect_two_whole_jobs(two_jobs(found, found.python, *program), "no launcher")


def test_the_program_finds_a_job_that_is_not_its_own(
    place: Callable[[str], Any], two_jobs: Callable[..., Any], tmp_path: Path
) -> None:
    """One job of two ranks, of which each believes to be in a job of another name."""
    found = place("plain")
    half = 'test "$6" = B && rank=1 || rank=0; exec env COLLOPS_RANK=$rank "$@"'
    program = [found.python, HERE / "rank_program.py", "2", "1", tmp_path]
    told = {"COLLOPS_JOB_ID": f"one-{os.getpid()}", "COLLOPS_RANK_SIZE": "2"}
    jobs = two_jobs(found, "sh", "-c", half, "sh", *program, env=told)
    for token, other in (("A", "('B', 1)"), ("B", "('A', 0)")):
        assert jobs[token].status == 1
        assert f"got blocks of other jobs, by job and rank: [{other}]" in jobs[token].said
