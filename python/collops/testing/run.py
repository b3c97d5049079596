"""run_ranks: starts ranks, collects their results, and ends them."""

from __future__ import annotations

import operator
from multiprocessing import current_process
from typing import TYPE_CHECKING, Any

from collops.launch.interrupts import exit_codes_known, interrupts_deferred
from collops.launch.own_job import job_variables, place_names
from collops.launch.processes import end_all, start, watch
from collops.testing.child import Ended, run_child, run_threads
from collops.testing.errors import RankDiedError, RankEndedError, RankErrors, results_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from collops.launch.processes import RankProcess
    from collops.testing.errors import Report

GRACE_S = 5.0  # once a rank has failed, for the others to end by themselves
TERMINATE_S = 2.0  # after SIGTERM, for a rank to end

_DEAF = (
    ", and did not end by SIGTERM: it ignores the signal, or native code does not return, as where "
    'it waits for threads that fork() does not copy (start_method="spawn" does without fork)'
)
_NOT_BEGUN = (
    ", and had not called fn yet: a rank that is not forked runs the main module first, where only "
    'what stands under if __name__ == "__main__" is left out'
)


def run_ranks(
    fn: Callable[..., Any],
    n: int,
    *args: Any,
    timeout: float = 60.0,
    start_method: str | None = None,
    env: Mapping[str, str] | None = None,
    threads: bool = False,
) -> list[Any]:
    """Calls ``fn(rank, *args)`` in `n` processes and returns their results in rank order.

    In each process collops.init() needs no arguments. The ranks are a job of their own, so ranks of
    two runs never connect. They also have this job's RANK, WORLD_SIZE, LOCAL_RANK,
    LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, with which torch's init_process_group() needs no
    arguments either, and do not use the rank table of a job that this process belongs to. Where
    torch is loaded in this process, a rank begins with one thread of torch.

    With `threads`, the ranks are threads of one new process. collops.init() returns a communicator
    of COMM_MULTI_THREAD in each thread; structs need that `comm_mode`, and the `rank`.

    Args:
        fn: the function that each rank runs; with start_method "spawn" it must be importable.
        n: number of ranks.
        *args: further arguments of fn, the same on every rank.
        timeout: seconds until all ranks must have returned.
        start_method: ``"fork"`` (default), ``"spawn"`` or ``"forkserver"``.
        env: variables to set in every rank's environment.
        threads: whether the ranks are threads of one process.

    Returns:
        The results in rank order; they must be picklable.

    Raises:
        TypeError: `fn` is no function, `n` no whole number, or `env` has a value that is no text.
        ValueError: `n` is less than 1, or `timeout` no number above 0.
        RuntimeError: this process may not start others, as a worker of multiprocessing.Pool.
        RankErrors: a rank raised, died or took too long; `.errors` has the exceptions. The other
            ranks had a few seconds to end by themselves.

    Example:
        >>> from collops.testing import run_ranks
        >>> run_ranks(pow, 3, 2)
        [0, 1, 4]
    """
    if not callable(fn):
        raise TypeError(
            f"run_ranks: fn must be a function of the rank, got {type(fn).__name__}: pass the "
            "function itself, not what a call of it returns"
        )
    if not hasattr(n, "__index__"):
        raise TypeError(f"run_ranks: n must be a whole number of ranks, got {n!r}")
    n = operator.index(n)
    if n < 1:
        raise ValueError(f"run_ranks: n must be at least 1, got {n}")
    if not isinstance(timeout, (int, float)) or not timeout > 0:
        raise ValueError(f"run_ranks: timeout must be a number of seconds above 0, got {timeout!r}")
    for name, value in (env or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"run_ranks: env must have texts, got {name!r}: {value!r}")
    if current_process().daemon:
        raise RuntimeError(
            "run_ranks: this process is a daemon of multiprocessing, such as a worker of its Pool, "
            "which may start no processes: concurrent.futures.ProcessPoolExecutor has no daemons"
        )
    if threads:
        return _run_as_threads(fn, n, args, timeout, start_method, env)
    job = {**job_variables("run_ranks", n), **(env or {})}
    method = start_method or "fork"
    processes: list[RankProcess] = []
    with exit_codes_known():
        try:
            for rank in range(n):
                own = {**place_names(rank, n, rank, n), **job}
                start(processes, [rank], run_child, (own, fn, rank, args), start_method=method)
            return _collect(processes, timeout, "" if method == "fork" else _NOT_BEGUN)
        finally:
            with interrupts_deferred():
                _terminate([process for process in processes if process.silent])
                end_all(processes, TERMINATE_S)


def _run_as_threads(
    fn: Callable[..., Any],
    n: int,
    args: tuple[Any, ...],
    timeout: float,
    start_method: str | None,
    env: Mapping[str, str] | None,
) -> list[Any]:
    """Runs the ranks as threads of a new process, which can be ended with all its changes."""
    given = (fn, n, args, timeout, GRACE_S)
    limit = timeout + GRACE_S
    try:
        [results] = run_ranks(
            run_threads, 1, *given, timeout=limit, start_method=start_method, env=env
        )
    except RankErrors as error:
        if isinstance(error.errors[0], RankErrors):
            raise error.errors[0] from None
        raise
    return list(results)


def _collect(processes: Sequence[RankProcess], timeout: float, not_begun: str) -> list[Any]:
    """Waits for every rank and returns the results, or raises RankErrors.

    `not_begun`: why a rank may have ended by SIGTERM, which it catches as soon as it begins.
    """
    late, first = watch(processes, timeout, GRACE_S, _failed)
    why = f"after {timeout:g} s"
    if first is not None:
        why = f"{GRACE_S:g} s after rank {first} had failed"
    deaf: list[RankProcess] = []
    if late:
        # A rank that gets SIGTERM reports its traceback; a rank that does not is killed.
        _terminate(late)
        deaf, _ = watch(late, TERMINATE_S)
        for process in deaf:
            process.kill()
    reports = {process.ranks[0]: _report_of(process) for process in processes}
    for process in late:
        rank = process.ranks[0]
        _, error, where = reports[rank]
        if isinstance(error, (Ended, RankDiedError)):
            how = f"rank {rank} was ended: it was still running {why}"
            silent = not_begun if isinstance(error, RankDiedError) else ""
            ended = RankEndedError(how + (_DEAF if process in deaf else silent))
            reports[rank] = None, ended, where
    return results_of(reports)


def _failed(process: RankProcess) -> bool:
    return not process.silent and _report_of(process)[1] is not None


def _report_of(process: RankProcess) -> Report:
    [rank] = process.ranks
    if process.lost:
        return None, RankDiedError(f"rank {rank} ended without a result: {process.lost}"), ""
    if process.problem is not None:
        said = f"the report of rank {rank} cannot be read: {process.problem}"
        return None, RuntimeError(said), ""
    report: Report = process.report or (None, Ended(), "")
    return report


def _terminate(processes: Sequence[RankProcess]) -> None:
    for process in processes:
        process.process.terminate()
