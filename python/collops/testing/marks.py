"""ranks: runs a pytest test on several ranks at once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collops.atb.param import CommMode
from collops.testing.run import RankErrors, run_ranks

_ADDED = ("rank_size", "comm_mode")


def ranks(
    *sizes: int,
    comm_modes: Sequence[CommMode] = (CommMode.COMM_MULTI_PROCESS,),
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a pytest test run its body on every rank, once per number of ranks.

    The test takes a parameter `comm`, the rank's communicator, and fails with the traceback of
    every rank that failed. It may take `rank_size` and `comm_mode`, too. Fixtures and
    pytest.mark.parametrize work: they are set up once, before the ranks start, and each rank has a
    copy of their values; a rank's changes stay in that rank. If all ranks skip, the test skips.

    Args:
        *sizes: numbers of ranks, at least one of them.
        comm_modes: the modes in which the test runs. COMM_MULTI_PROCESS (the default): each rank is
            a process; COMM_MULTI_THREAD: the ranks are threads of one process.
        timeout: seconds until all ranks must have ended.
        env: variables to set in every rank's environment.

    Returns:
        A decorator for test functions and methods.

    Raises:
        TypeError: there is no size, or the test has no parameter `comm`.

    Example:
        >>> import numpy as np
        >>> from collops.testing import ranks
        >>> @ranks(2, 4)
        ... def test_sum_of_ranks(comm):
        ...     total = comm.reduce_scatterv(np.full(comm.size, comm.rank))
        ...     assert total.tolist() == [sum(range(comm.size))]
        >>> test_sum_of_ranks(rank_size=2)  # what pytest calls, once with 2 and once with 4
    """
    if not sizes or not all(isinstance(size, int) for size in sizes):
        raise TypeError(f"ranks needs numbers of ranks, such as @ranks(2, 4), got {sizes}")
    cases = [(size, mode) for mode in comm_modes for size in sizes]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        import pytest

        wanted = inspect.signature(test).parameters
        if "comm" not in wanted:
            raise TypeError(f"{test.__name__} needs a parameter comm, its rank's communicator")

        @functools.wraps(test)
        def run(
            *args: Any,
            rank_size: int,
            comm_mode: int = CommMode.COMM_MULTI_PROCESS,
            **kwargs: Any,
        ) -> None:
            added = {"rank_size": rank_size, "comm_mode": comm_mode}
            kwargs.update({name: added[name] for name in _ADDED if name in wanted})
            threads = comm_mode == CommMode.COMM_MULTI_THREAD
            _run(functools.partial(test, *args, **kwargs), rank_size, threads, timeout, env)

        run.__signature__ = _signature(test)  # type: ignore[attr-defined]
        ids = [_case_id(*case) for case in cases]
        parametrised: Callable[..., None] = pytest.mark.parametrize(_ADDED, cases, ids=ids)(run)
        return parametrised

    return decorate


def _run(
    test: Callable[..., None],
    rank_size: int,
    threads: bool,
    timeout: float,
    env: Mapping[str, str] | None,
) -> None:
    import pytest

    failure = ""
    try:
        skips = run_ranks(_body, rank_size, test, timeout=timeout, env=env, threads=threads)
    except RankErrors as failed:
        failure = str(failed)
    if failure:
        pytest.fail(failure, pytrace=False)
    if all(skips):
        outcome, reason = skips[0]
        (pytest.skip if outcome == "skip" else pytest.xfail)(reason)
    if any(skips):
        who = [rank for rank, skip in enumerate(skips) if skip]
        pytest.fail(f"ranks {who} skipped the test, the others did not", pytrace=False)


def _body(rank: int, test: Callable[..., None]) -> tuple[str, str] | None:
    """Runs the test on one rank; returns how and why it was skipped, which is no error."""
    import pytest

    from collops.launch.init import init

    try:
        with init() as communicator:
            test(comm=communicator)
    except pytest.skip.Exception as skipped:
        return "skip", str(skipped.msg)
    except pytest.xfail.Exception as skipped:
        return "xfail", str(skipped.msg)
    return None


def _signature(test: Callable[..., None]) -> inspect.Signature:
    """The parameters for pytest: those of the test without `comm`, and the ones of `ranks`."""
    signature = inspect.signature(test)
    kept = [p for name, p in signature.parameters.items() if name not in ("comm", *_ADDED)]
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in _ADDED]
    return signature.replace(parameters=[*kept, *added])


def _case_id(rank_size: int, comm_mode: int) -> str:
    return f"{rank_size}" if comm_mode == CommMode.COMM_MULTI_PROCESS else f"{rank_size}-threads"
