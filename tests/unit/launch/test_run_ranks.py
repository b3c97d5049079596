"""run_ranks: results in order, every error with its rank, an end in time, nothing left."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import collops
from collops.testing import RankDiedError, RankEndedError, RankErrors, run_ranks
from patience import patience
from tests import programs


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_start_methods(method: str) -> None:
    assert run_ranks(divmod, 3, 2, start_method=method) == [(0, 0), (0, 1), (1, 0)]


def supplied(fn: Callable[..., Any]) -> Callable[[int], Any]:
    """A decorator that supplies the second argument."""

    @functools.wraps(fn)
    def call(rank: int) -> Any:
        return fn(rank, 2)

    return call


class Unsigned:
    """A function whose signature cannot be had, as of names that are not defined."""

    @property
    def __signature__(self) -> Any:
        raise NameError("name 'Missing' is not defined")

    def __call__(self, rank: int) -> tuple[int, int]:
        return divmod(rank, 2)


class Wrapper:
    """A function that supplies an argument, with the looks of another one."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn

    def __call__(self, rank: int) -> Any:
        return self.fn(rank, 2)


@pytest.mark.parametrize(
    "fn",
    [
        supplied(lambda rank, divisor: divmod(rank, divisor)),
        mock.patch("os.getcwd", return_value=2)(lambda rank, cwd: divmod(rank, cwd())),
        Wrapper(lambda rank, divisor: divmod(rank, divisor)),
        functools.partial(supplied(lambda rank, divisor: divmod(rank, divisor))),
        functools.lru_cache(lambda rank: divmod(rank, 2)),
        Unsigned(),
    ],
    ids=["wraps", "mock", "wrapper", "partial", "cache", "no signature"],
)
def test_functions_that_wrap_another(fn: Callable[..., Any]) -> None:
    assert run_ranks(fn, 2) == [(0, 0), (0, 1)]


def test_environment() -> None:
    def look(rank: int) -> tuple[str | None, ...]:
        names = ("COLLOPS_RANK", "COLLOPS_RANK_SIZE", "COLLOPS_JOB_ID", "COLOUR")
        return tuple(os.environ.get(name) for name in names)

    first, second = (run_ranks(look, 2, env={"COLOUR": "blue"}) for _ in range(2))
    assert [row[:2] for row in first] == [("0", "2"), ("1", "2")]
    assert {row[3] for row in first} == {"blue"}
    assert first[0][2] == first[1][2]
    assert first[0][2] != second[0][2]
    assert "COLLOPS_RANK" not in os.environ


def test_every_failing_rank_is_listed_with_its_traceback() -> None:
    def fail(rank: int) -> None:
        if rank != 1:
            raise KeyError(f"from rank {rank}")

    with pytest.raises(RankErrors) as caught:
        run_ranks(fail, 3)
    errors = caught.value
    assert {rank: repr(error) for rank, error in errors.errors.items()} == {
        0: "KeyError('from rank 0')",
        2: "KeyError('from rank 2')",
    }
    text = str(errors)
    assert "ranks 0, 2 failed" in text
    assert text.count("in fail") == 2
    assert text.index("--- rank 0 ---") < text.index("--- rank 2 ---")


def test_our_errors_keep_code_and_class() -> None:
    def fail(rank: int) -> None:
        collops.init(rank, 0)

    with pytest.raises(RankErrors) as caught:
        run_ranks(fail, 1)
    error = caught.value.errors[0]
    assert isinstance(error, collops.ArgumentError)
    assert error.code == 1


class Stubborn(Exception):
    """Pickles, but cannot be made again from its arguments."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_an_exception_that_does_not_pickle_keeps_its_words() -> None:
    def fail(rank: int) -> None:
        raise Stubborn(1, 2)

    with pytest.raises(RankErrors, match="Stubborn: 1 and 2"):
        run_ranks(fail, 1)


def test_a_result_that_does_not_pickle() -> None:
    with pytest.raises(RankErrors, match="result of a rank cannot be pickled"):
        run_ranks(lambda rank: threading.Lock(), 1)


def test_system_exit_is_an_error() -> None:
    with pytest.raises(RankErrors) as caught:
        run_ranks(lambda rank: sys.exit("enough"), 1)
    assert isinstance(caught.value.errors[0], SystemExit)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_silent_death_names_the_signal(number: signal.Signals) -> None:
    def die(rank: int) -> None:
        if rank == 1:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    with pytest.raises(RankErrors) as caught:
        run_ranks(die, 2)
    assert list(caught.value.errors) == [1]
    assert isinstance(caught.value.errors[1], RankDiedError)
    assert f"killed by {number.name}" in str(caught.value)


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_an_exit_without_a_word_names_the_code(handler: signal.Handlers) -> None:
    before = signal.signal(signal.SIGCHLD, handler)
    try:
        with pytest.raises(RankErrors, match="exit code 5"):
            run_ranks(lambda rank: os._exit(5), 1)
        assert signal.getsignal(signal.SIGCHLD) is handler
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_hang_ends_in_time_and_says_where() -> None:
    def hang(rank: int) -> int:
        while rank == 1:
            time.sleep(0.1)
        return rank

    start = time.monotonic()
    with pytest.raises(RankErrors) as caught:
        run_ranks(hang, 2, timeout=patience(1.0))
    assert time.monotonic() - start < patience(12)
    assert list(caught.value.errors) == [1]
    assert isinstance(caught.value.errors[1], RankEndedError)
    assert f"still running after {patience(1):g} s" in str(caught.value)
    assert "in hang" in str(caught.value)


def test_a_rank_that_ignores_the_request_is_killed() -> None:
    def deaf(rank: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)

    start = time.monotonic()
    with pytest.raises(RankErrors, match=r"still running after .*, and did not end by SIGTERM"):
        run_ranks(deaf, 2, timeout=0.3)
    assert time.monotonic() - start < patience(12)


def test_the_others_are_ended_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collops.testing.run.GRACE_S", 0.5)

    def fail_or_hang(rank: int) -> None:
        if rank == 0:
            raise ValueError("the first")
        time.sleep(600)

    start = time.monotonic()
    with pytest.raises(RankErrors) as caught:
        run_ranks(fail_or_hang, 3)
    assert time.monotonic() - start < patience(12)
    assert {rank: type(error).__name__ for rank, error in caught.value.errors.items()} == {
        0: "ValueError",
        1: "RankEndedError",
        2: "RankEndedError",
    }
    assert "after rank 0 had failed" in str(caught.value)


def zombies() -> list[str]:
    """What /proc says of children that have ended and were not waited for."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if fields[0] == "Z" and int(fields[1]) == os.getpid():
                found.append(path.read_text())
    return found


def test_no_zombie_and_no_open_file_is_left() -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def fail(rank: int) -> None:
        raise ValueError

    run_ranks(divmod, 2, 7)
    before = open_files()
    run_ranks(divmod, 3, 7)
    for _ in range(3):
        with pytest.raises(RankErrors):
            run_ranks(fail, 3)
    assert open_files() == before
    assert zombies() == []


def test_two_runs_at_once_do_not_meet() -> None:
    results: dict[int, list[object]] = {}

    def meet(rank: int, number: int) -> list[int]:
        comm = collops.init()
        assert comm.size == 2
        gathered: list[int] = comm.all_gatherv(np.array([number])).tolist()
        return gathered

    def run(number: int) -> None:
        results[number] = run_ranks(meet, 2, number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [[number] * 2] * 2 for number in range(4)}


def test_ranks_may_run_ranks() -> None:
    assert run_ranks(lambda rank: run_ranks(divmod, 2, 7), 2) == [[(0, 0), (0, 1)]] * 2


def test_a_process_that_a_rank_forks_ends_by_sigterm() -> None:
    def handlers(rank: int) -> list[object]:
        own = signal.getsignal(signal.SIGTERM)
        with multiprocessing.get_context("fork").Pool(1) as pool:
            inherited = pool.apply(signal.getsignal, (signal.SIGTERM,))
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a handler of the rank's own stays
        with multiprocessing.get_context("fork").Pool(1) as pool:
            chosen = pool.apply(signal.getsignal, (signal.SIGTERM,))
            signal.signal(signal.SIGTERM, own)
            pool.close()
            pool.join()
        return [inherited, chosen]

    assert run_ranks(handlers, 1) == [[signal.SIG_DFL, signal.SIG_IGN]]


def test_ctrl_c_ends_the_ranks(tmp_path: Path) -> None:
    def note(rank: int) -> None:
        (tmp_path / f"{rank}").write_text(f"{os.getpid()}")
        time.sleep(600)

    def interrupt() -> None:
        while len([path for path in tmp_path.iterdir() if path.read_text()]) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_ranks(note, 2)
    thread.join()
    for path in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.read_text() or 0), 0)


def test_ctrl_c_between_two_starts_leaves_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    from collops.launch import processes

    started: list[int] = []
    start = processes.RankProcess

    def start_and_interrupt(*args: Any, **kwargs: Any) -> Any:
        rank = start(*args, **kwargs)
        started.append(rank.process.pid or 0)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)  # here the handler would run
        return rank

    monkeypatch.setattr(processes, "RankProcess", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_ranks(lambda rank: time.sleep(600), 3)
    [pid] = started
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_process_that_may_start_no_other_is_told() -> None:
    told = pytest.raises(RuntimeError, match="a daemon of multiprocessing, such as a worker of")
    with multiprocessing.get_context("fork").Pool(1) as pool, told:
        pool.apply(run_ranks, (divmod, 1, 2))


def test_a_main_module_that_does_not_end_is_the_reason(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import time\n"
        "from collops.testing import run_ranks\n"
        "if __name__ != '__main__':\n"
        "    time.sleep(600)\n"
        f"run_ranks(divmod, 1, 1, timeout={patience(2)}, start_method='spawn')\n"
    )
    done = programs.run([sys.executable, str(program)], capture_output=True)
    assert "fn yet: a rank that is not forked runs the main module first" in done.stderr
