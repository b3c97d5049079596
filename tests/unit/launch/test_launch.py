"""The process manager alone: reports of processes, threads and programs, and their end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from collops.launch.processes import RankProcess, end_all, post, run_on_threads, start, watch
from collops.launch.programs import Programs
from patience import patience


@contextmanager
def processes_of(work: Any, ranks: int) -> Iterator[list[RankProcess]]:
    """Processes that answer what they are asked with ``work(rank, question)``, until it is None."""

    def main(end: Any, rank: int) -> None:
        while (question := end.recv()) is not None:
            post(end.fileno(), work(rank, question))

    processes: list[RankProcess] = []
    try:
        for rank in range(ranks):
            start(processes, [rank], main, (rank,), daemon=True, apart=True)
        yield processes
    finally:
        for process in processes:
            process.ask(None)
        end_all(processes, 5.0)


class Unreadable:
    """Pickles, and cannot be made again."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_a_report_that_cannot_be_read_is_no_end_of_the_others() -> None:
    def work(rank: int, question: int) -> Any:
        return Unreadable() if rank == 0 else question

    with processes_of(work, 2) as processes:
        for process in processes:
            process.ask(5)
        assert watch(processes, 30.0) == ([], None)
        assert "no number" in str(processes[0].problem)
        assert processes[1].report == 5


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_threads_that_raise_hang_or_report_are_distinguished() -> None:
    over = threading.Event()

    def work(rank: int) -> Any:
        if rank == 1:
            raise ValueError("on purpose")
        if rank == 2:
            over.wait(patience(60))
        return rank + 10

    reports, running = run_on_threads(range(3), work, 60.0, 0.1, lambda report: report is None)
    assert (reports, list(running)) == ({0: 10, 1: None}, [2])
    over.set()
    running[2].join()


def test_a_program_that_does_not_start_ends_those_before_it(tmp_path: Path) -> None:
    env = dict(os.environ)
    commands = [(["sleep", "600"], env), ([str(tmp_path / "none")], env)]
    with (tmp_path / "said").open("w") as said, pytest.raises(FileNotFoundError):
        Programs(commands, said)
