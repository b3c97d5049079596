"""run_ranks: starts ranks, collects their results, and ends them."""

from __future__ import annotations

import functools
import inspect
import operator
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import current_process
from types import FrameType
from typing import TYPE_CHECKING, Any

from collops.errors import status_of
from collops.launch.environment import enter, job_variables, place_names
from collops.launch.init import thread_rank
from collops.launch.processes import (
    end_all,
    exit_codes_known,
    interrupts_deferred,
    packed,
    run_on_threads,
    start,
    watch,
    write_all,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from collops.launch.processes import RankProcess

    # A rank's result, or its error and the traceback.
    Report = tuple[Any, "BaseException | None", str]


class RankErrors(Exception):  # noqa: N818 - the errors of several ranks
    """One or more ranks failed.

    Attributes:
        errors: the exception of each rank that failed, by rank.
        tracebacks: the traceback of each error as text, by rank.
    """

    def __init__(self, errors: dict[int, BaseException], tracebacks: dict[int, str]) -> None:
        super().__init__(errors, tracebacks)
        self.errors = errors
        self.tracebacks = tracebacks

    def __str__(self) -> str:
        ranks = ", ".join(map(str, self.errors))
        parts = [f"rank {ranks} failed" if len(self.errors) == 1 else f"ranks {ranks} failed"]
        for rank, error in self.errors.items():
            parts.append(f"--- rank {rank} ---\n{self._describe(rank, error)}")
        return "\n".join(parts)

    def _describe(self, rank: int, error: BaseException) -> str:
        where = self.tracebacks.get(rank, "").rstrip()
        if isinstance(error, RankEndedError):
            return f"{error}; it was here:\n{where}" if where else str(error)
        return where or f"{type(error).__name__}: {error}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.errors, self.tracebacks)


class RankDiedError(RuntimeError):
    """A rank's process ended without a report."""


class RankEndedError(RuntimeError):
    """run_ranks ended a rank, because of the time-out or because another rank had failed."""


def results_of(reports: Mapping[int, Report]) -> list[Any]:
    """Returns the results of all ranks in rank order, or raises RankErrors."""
    by_rank = sorted(reports.items())
    errors = {rank: error for rank, (_, error, _) in by_rank if error is not None}
    if errors:
        raise RankErrors(errors, {rank: reports[rank][2] for rank in errors})
    return [result for _, (result, _, _) in by_rank]


class Ended(BaseException):
    """Raised in the rank's main thread when run_ranks asks the process to end."""


def run_child(
    end: Connection,
    environment: dict[str, str],
    fn: Callable[..., Any],
    rank: int,
    args: tuple[Any, ...],
) -> None:
    """Calls ``fn(rank, *args)`` and posts (result, None, "") or (None, exception, traceback)."""
    enter(environment)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.register_at_fork(after_in_child=_drop_handler)
    # A forked rank has none of the threads that OpenMP made in its parent, but may wait for them.
    set_threads = getattr(sys.modules.get("torch"), "set_num_threads", None)
    if set_threads is not None:
        set_threads(1)
    try:
        report = _packed(fn(rank, *args))
    except BaseException as error:
        _leave(error)
        report = packed((None, _portable(error), traceback.format_exc()))
    write_all(end.fileno(), report)
    end.close()


def _end(signal_number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second SIGTERM changes nothing
    raise Ended


def _drop_handler() -> None:
    """A process that a rank forks, as of a pool, ends by SIGTERM, as it would elsewhere."""
    if signal.getsignal(signal.SIGTERM) is _end:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _leave(error: BaseException) -> None:
    # At once, so that ranks that wait for this one need not wait for its process to end.
    if "collops._core" in sys.modules:
        from collops.core import leave

        leave(error)


def _packed(result: Any) -> bytes:
    try:
        return packed((result, None, ""))
    except Exception as problem:
        error = TypeError(f"the result of a rank cannot be pickled: {problem}")
        return packed((None, error, ""))


def _portable(error: BaseException) -> BaseException:
    """The exception, or one with the same text if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))  # some exceptions pickle but do not unpickle
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def run_threads(
    process: int,
    fn: Callable[..., Any],
    n: int,
    args: tuple[Any, ...],
    timeout: float,
    grace_s: float,
) -> list[Any]:
    """The main function if ranks are threads: calls ``fn(rank, *args)`` in a thread per rank.

    Raises:
        RankErrors: a rank raised, or took too long; its thread ends with the process.
    """
    for name in place_names(0, 1, 0, 1):
        os.environ.pop(name, None)  # they describe the process, not its threads

    def work(rank: int) -> Report:
        thread_rank.begin(rank, n)
        try:
            result = fn(rank, *args)
        except BaseException as error:
            # At once, so that ranks that wait for this one need not wait for the process to end.
            thread_rank.leave(status_of(error)[1])
            return None, _portable(error), traceback.format_exc()
        thread_rank.leave(f"rank {rank} has returned")
        return result, None, ""

    reports, running = run_on_threads(
        range(n), work, timeout, grace_s, failed=lambda report: report[1] is not None
    )
    for rank, thread in running.items():
        error = RankEndedError(f"rank {rank} was still running after its time-out")
        reports[rank] = None, error, _stack(thread)
    return results_of(reports)


def _stack(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else ""


GRACE_S = 5.0  # once a rank has failed, for the others to end by themselves
TERMINATE_S = 2.0  # after SIGTERM, for a rank to end
_SHOWN_PARAMETERS = 8  # of a function that does not fit

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
        TypeError: `fn` is no function, or none of a rank and `args`; `n` is no whole number, or
            `env` has a value that is no text.
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
    _check_arguments(fn, args)
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


def _check_arguments(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Raises TypeError if the function cannot be called with a rank and these arguments."""
    try:
        # A decorator may supply arguments to the function that it wraps.
        signature = inspect.signature(fn, follow_wrapped=False)
    except Exception:  # written in C without one, or its annotations name what is not there
        return
    try:
        signature.bind(0, *args)
    except TypeError as problem:
        name = _name_of(fn)
        raise TypeError(
            f"run_ranks: each rank calls {name}(rank{', *args' if args else ''}), which does not "
            f"fit {name}{_names_of_parameters(signature)}: {problem}"
        ) from None


def _name_of(fn: Callable[..., Any]) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return str(getattr(fn, "__name__", type(fn).__name__))


def _names_of_parameters(signature: inspect.Signature) -> str:
    """The parameters in brackets, without defaults and annotations, which may be long."""
    empty = inspect.Parameter.empty
    bare = [each.replace(default=empty, annotation=empty) for each in signature.parameters.values()]
    text = str(inspect.Signature(bare[:_SHOWN_PARAMETERS]))
    return text if len(bare) <= _SHOWN_PARAMETERS else f"{text[:-1]}, ...)"


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
