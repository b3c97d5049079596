"""run_ranks: starts the ranks, collects what they return, and ends them in time."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import threading
import warnings
from typing import TYPE_CHECKING, Any

from collops.launch.child import run_child
from collops.launch.interrupts import interrupts_deferred
from collops.launch.processes import GRACE_S, Rank, collect, end_all, forget_all
from collops.launch.threads import run_threads
from collops.testing.errors import RankErrors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# While one rank is started, no other process may be forked: it would keep a copy of the rank's
# pipes, and their end would never be seen. Nor may one be forgotten: start() looks at them all.
_starting = threading.Lock()


def _renew_lock() -> None:
    # A rank was forked while its parent held the lock, and may run ranks of its own.
    global _starting
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


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

    In each process collops.init() knows its place without arguments. The ranks are a job of their
    own: two runs never meet, one after another or at once.

    With `threads`, the ranks are threads of one new process. collops.init() gives each of them a
    communicator of COMM_MULTI_THREAD; structs need that as `comm_mode`, and their `rank`.

    Args:
        fn: what each rank runs; with start_method "spawn" it must be importable.
        n: number of ranks.
        *args: passed on to every rank.
        timeout: seconds until all ranks must have returned.
        start_method: ``"fork"`` (default), ``"spawn"`` or ``"forkserver"``.
        env: variables to set in every rank's environment.
        threads: whether the ranks are threads of one process.

    Returns:
        The results, which must pickle; result r is rank r's.

    Raises:
        ValueError: `n` is less than 1.
        RankErrors: a rank raised, died or took too long; `.errors` has the exception of each. The
            other ranks had a few seconds to end by themselves.

    Example:
        >>> from collops.testing import run_ranks
        >>> run_ranks(pow, 3, 2)
        [0, 1, 4]
    """
    if n < 1:
        raise ValueError(f"run_ranks: n must be at least 1, got {n}")
    if threads:
        return _run_as_threads(fn, n, args, timeout, start_method, env)
    environment = {
        "COLLOPS_JOB_ID": f"run_ranks-{secrets.token_hex(16)}",
        "COLLOPS_RANK_SIZE": str(n),
        **(env or {}),
    }
    context = multiprocessing.get_context(start_method or "fork")
    ranks: list[Rank] = []
    try:
        for rank in range(n):
            with _starting, interrupts_deferred():
                ranks.append(_start(context, environment, fn, rank, args))
        return collect(ranks, timeout)
    finally:
        with interrupts_deferred():
            end_all(ranks)
            with _starting:
                forget_all(ranks)


def _run_as_threads(
    fn: Callable[..., Any],
    n: int,
    args: tuple[Any, ...],
    timeout: float,
    start_method: str | None,
    env: Mapping[str, str] | None,
) -> list[Any]:
    """The ranks in a process of their own: it can be ended, and what it changes ends with it."""
    try:
        [results] = run_ranks(
            run_threads,
            1,
            fn,
            n,
            args,
            timeout,
            timeout=timeout + GRACE_S,
            start_method=start_method,
            env=env,
        )
    except RankErrors as error:
        if isinstance(error.errors[0], RankErrors):
            raise error.errors[0] from None
        raise
    return list(results)


def _start(
    context: Any, environment: dict[str, str], fn: Callable[..., Any], rank: int, args: Any
) -> Rank:
    receiving, sending = context.Pipe(duplex=False)
    own = {**environment, "COLLOPS_RANK": str(rank)}
    process = context.Process(
        target=run_child, args=(sending, own, fn, rank, args), name=f"rank {rank}", daemon=False
    )
    try:
        with warnings.catch_warnings():
            # Python warns of fork() beside threads. The ranks are this process's own business, and
            # only fork() can run functions that do not pickle.
            warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
            process.start()
    except BaseException:
        receiving.close()
        raise
    finally:
        sending.close()
    return Rank(rank, process, receiving)
