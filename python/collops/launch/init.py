"""init(): the rank of this process, and its communicators."""

from __future__ import annotations

import operator
import os
import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn
from weakref import WeakSet, WeakValueDictionary

from collops.atb.param import CommMode
from collops.collectives.communicator import Communicator, made_here
from collops.core import core
from collops.errors import ErrorCode, hints_at_keywords, nearest, raise_status

PREFIX = "COLLOPS_"
# What follows the prefix in variables of the tests: their programs, and simulated GPUs and NPUs.
_OF_TESTS = ("TEST_", "SIM_")
# The least similarity (difflib's ratio) of a misspelt name and the one that is meant.
_ALIKE = 0.7


def unknown_variables(known: Sequence[str]) -> dict[str, str]:
    """By the name of each variable that is set and not known: the one that is meant, or ""."""
    names = [name for name in sorted(os.environ) if name.startswith(PREFIX) and name not in known]
    endings = [one.removeprefix(PREFIX) for one in known]
    found = {}
    for name in names:
        ending = name.removeprefix(PREFIX)
        if not ending.startswith(_OF_TESTS):
            near = nearest(ending, endings, _ALIKE)
            found[name] = f"{PREFIX}{near}" if near else ""
    return found


_MAX_DOMAIN = 128
# The core's name for COLLOPS_RANK and COLLOPS_RANK_SIZE, which a user may set, too.
OWN_VARIABLES = "COLLOPS_RANK"
_live: WeakValueDictionary[int, Communicator] = WeakValueDictionary()
_looked_at_variables: list[bool] = []


class ThreadRank(threading.local):
    """The rank of this thread, if run_ranks started ranks as threads; size 0: it is no rank."""

    rank = -1
    size = 0

    def __init__(self) -> None:
        self.communicators: list[Communicator] = []  # kept until the rank leaves

    def begin(self, rank: int, size: int) -> None:
        """This thread is that rank from now on."""
        self.rank, self.size = rank, size
        made_here.communicators = WeakSet()

    @staticmethod
    def leave(reason: str) -> None:
        """Closes all communicators that this thread has made."""
        for communicator in made_here.communicators or ():
            communicator._core.close(reason)


thread_rank = ThreadRank()


@hints_at_keywords
def init(
    rank: int | None = None,
    rank_size: int | None = None,
    *,
    backend: str | None = None,
    comm_domain: str = "",
    timeout_s: float | None = None,
    comm_mode: int | None = None,
    job_id: str = "",
    meet_at: str = "",
    tuning: str = "",
    join: str | None = None,
) -> Communicator:
    """Returns the communicator of a domain after first contact with every rank.

    Args:
        rank: this process's number; None: from the launcher (run_ranks, torchrun, mpirun or srun)
            or COLLOPS_RANK.
        rank_size: number of ranks, at least 1; None: likewise, or from COLLOPS_RANK_SIZE.
        backend: the backend that moves the data; COLLOPS_BACKEND may replace it. None: shm, or
            ucx if the rank table (RANK_TABLE_FILE), or without one the launcher, says that the
            ranks are on several hosts.
        comm_domain: the group's name; the same name is the same communicator while it is open.
        timeout_s: seconds that a call waits for other ranks; None: COLLOPS_TIMEOUT_S, or 300.
        comm_mode: COMM_MULTI_THREAD if all ranks are threads of this process; each thread passes
            its rank. None: set by run_ranks, or COMM_MULTI_PROCESS.
        job_id: the job's name, if the ranks have agreed on one by other means, such as a store of
            torch; it replaces the launcher's. ``""``: the launcher's job.
        meet_at: with `job_id`: an address of rank 0's host and a port that is free there, as
            ``"10.0.0.1:29577"``, where ranks on several hosts meet; `backend` None is then ucx.
            ``""``: the ranks of the job are on one host; `backend` None is then shm.
        tuning: sizes at which a call switches its algorithm, such as
            ``"all_reduce_one_step=64k"``, in place of those of COLLOPS_TUNING and in its format;
            the same in all ranks of a host. An open communicator keeps the sizes with which it was
            made.
        join: the comm_domain of a running group of this job, which this process joins as a new rank
            once the group's ranks call ``comm.grow(n)``. Waits for that, for at most `timeout_s`;
            rank, number of ranks and sizes are the group's. Of a group on several hosts `backend`
            is "ucx", which a rank table (RANK_TABLE_FILE) says as well; its rank 0 is on a host of
            that table, or where MASTER_ADDR, or `meet_at` beside a `job_id`, says. None: a new
            group.

    Returns:
        The communicator, which structs with this `comm_domain` also use.

    Raises:
        ArgumentError: rank, rank_size, backend or the job's identity is missing or wrong, or
            rank_size is more than the launcher has started.
        RankMismatchError: a rank was claimed twice, or the ranks disagree on rank_size or on
            the sizes of COLLOPS_TUNING.
        RankTimeoutError: a rank did not connect within `timeout_s`; the message names it. Or no
            group of `join` has grown until then.
        UnsupportedError: the backend cannot run here; the message says why.

    Source of the semantics: torch.distributed.init_process_group, MPI_Init.

    Example:
        >>> import collops
        >>> from collops.testing import run_ranks
        >>> run_ranks(lambda rank: collops.init(comm_domain="tp").size, 3)
        [3, 3, 3]
    """
    words = {"comm_domain": comm_domain, "job_id": job_id, "meet_at": meet_at, "tuning": tuning}
    _check_words({"backend": "shm" if backend is None else backend} | words)
    _check_timeout(timeout_s)
    if join is not None:
        _check_join(join, {"rank": rank, "rank_size": rank_size} | words)
    if meet_at and not job_id:
        _bad(f"meet_at is {meet_at!r} without a job_id: pass that of the ranks that meet there")
    module = core()
    _warn_of_misspelt_variables(module)
    if join is not None:
        if comm_mode is None and thread_rank.size:
            comm_mode = CommMode.COMM_MULTI_THREAD
        mode = CommMode.COMM_MULTI_PROCESS if comm_mode is None else _mode(comm_mode)
        found = module.join(backend or "", join, timeout_s or 0.0, int(mode), job_id, meet_at)
        return _living(found)
    name, launched_rank, launched_size, launched_mode = _launched(module, comm_mode)
    _check_said(name, {"rank": (rank, launched_rank), "rank_size": (rank_size, launched_size)})
    rank = launched_rank if rank is None else _whole("rank", rank)
    rank_size = launched_size if rank_size is None else _whole("rank_size", rank_size)
    comm_mode = launched_mode if comm_mode is None else _mode(comm_mode)
    _check_place(rank, rank_size, comm_mode, launched_size)
    _hint_at_join(rank_size)
    found = module.connect(
        "" if backend is None else backend,
        comm_domain,
        rank,
        rank_size,
        timeout_s or 0.0,
        comm_mode,
        job_id,
        meet_at,
        tuning,
    )
    return _living(found)


def _living(found: Any) -> Communicator:
    """The object of this process for a communicator of the core."""
    communicator = _live.get(found.handle)
    if communicator is None:
        communicator = _live[found.handle] = Communicator(found)
        if thread_rank.size:
            thread_rank.communicators.append(communicator)
    return communicator


def _check_join(join: str, others: dict[str, Any]) -> None:
    """Refuses `join` with what the group gives its new ranks."""
    _check_words({"comm_domain": join})
    for name in ("rank", "rank_size", "comm_domain", "tuning"):
        if others[name] not in (None, ""):
            _bad(
                f"{name} is {others[name]!r} beside join={join!r}: pass join alone, a new process "
                "gets its rank and all else from the group that it joins"
            )


def _warn_of_misspelt_variables(module: ModuleType) -> None:
    """Logs, once in a process, each variable whose name is like one that collops reads."""
    if _looked_at_variables:
        return
    _looked_at_variables.append(True)
    unknown = unknown_variables([name for name, _, _ in module.env_variables()])
    for name, meant in unknown.items():
        if meant:
            import logging  # takes time, and is seldom needed

            logging.getLogger("collops").warning(
                "unknown variable %s; did you mean %s?", name, meant
            )


def _hint_at_join(rank_size: int) -> None:
    """Logs what a rank that `collops run` has started anew waits for, unless it has joined."""
    restarts = os.environ.get("COLLOPS_RESTARTS", "0")
    if restarts not in ("", "0") and rank_size > 1 and not _live:
        import logging  # takes time, and is seldom needed

        logging.getLogger("collops").warning(
            "init: this process was started anew (COLLOPS_RESTARTS=%s), and waits for all %d ranks "
            "to make a new group; to join ranks that have gone on, call init(join=COMM_DOMAIN)",
            restarts,
            rank_size,
        )


def _launched(module: ModuleType, comm_mode: int | None) -> tuple[str, int, int, int]:
    """The launcher, rank, number of ranks and mode of this process; -1: not set by a launcher."""
    if thread_rank.size and comm_mode != CommMode.COMM_MULTI_PROCESS:
        return "run_ranks", thread_rank.rank, thread_rank.size, CommMode.COMM_MULTI_THREAD
    return *module.launcher(), CommMode.COMM_MULTI_PROCESS


def _mode(comm_mode: int) -> int:
    if comm_mode not in (CommMode.COMM_MULTI_PROCESS, CommMode.COMM_MULTI_THREAD):
        _bad(
            f"comm_mode must be 0 (COMM_MULTI_PROCESS) or 1 (COMM_MULTI_THREAD), got {comm_mode!r}"
        )
    return int(comm_mode)


def _whole(name: str, value: int) -> int:
    try:
        return operator.index(value)
    except TypeError:
        _bad(f"{name} must be a whole number, got {value!r}")


def _check_words(words: dict[str, str]) -> None:
    for name, text in words.items():
        if not isinstance(text, str):
            _bad(f"{name} must be a str, got {text!r}")
    length = len(words["comm_domain"].encode())
    if length > _MAX_DOMAIN:
        _bad(f"comm_domain has {length} characters, the limit is {_MAX_DOMAIN}")


def _check_timeout(timeout_s: float | None) -> None:
    if timeout_s is None:
        return
    if not isinstance(timeout_s, (int, float)) or not 0 < timeout_s <= sys.float_info.max:
        _bad(f"timeout_s must be a number of seconds above 0, got {timeout_s!r}")


def _check_said(launcher: str, places: dict[str, tuple[int | None, int]]) -> None:
    """Refuses a rank or size that neither caller nor launcher sets; `places`: both, by name."""
    missing = [name for name, (passed, said) in places.items() if passed is None and said == -1]
    if missing and launcher == OWN_VARIABLES:
        _bad("; ".join(map(variable_fault, missing)))
    if missing:
        who = f"{launcher} does not set" if launcher else "no launcher sets"
        alone = "RANK" in os.environ and "WORLD_SIZE" in os.environ and launcher != "torchrun"
        _bad(
            f"{who} this process's {' and '.join(missing)}: start it with `collops run -n N "
            "SCRIPT`, torchrun, mpirun or srun (in a notebook or test: collops.testing.run_ranks), "
            "pass rank and rank_size, or set COLLOPS_RANK and COLLOPS_RANK_SIZE"
            f"{' (RANK and WORLD_SIZE alone are not read)' if alone else ''}"
        )


def variable_fault(name: str) -> str:
    """What is wrong with the variable of a rank or size that was not passed."""
    variable = f"COLLOPS_{name.upper()}"
    text = os.environ.get(variable)
    fault = "is not set" if text is None else f"must be a whole number, got {text!r}"
    return f"{variable} {fault}: set it, or pass {name}"


def _check_place(rank: int, rank_size: int, comm_mode: int, launched_size: int) -> None:
    if rank_size < 1:
        _bad(f"rank_size must be at least 1, got {rank_size}")
    if not 0 <= rank < rank_size:
        hint = f"; rank_size {rank_size} was passed, but the launcher started {launched_size}"
        hint = hint if rank_size < launched_size else ""
        _bad(f"rank must be from 0 to {rank_size - 1}, got {rank}{hint}")
    # For processes the core compares with the number of started ranks.
    if comm_mode == CommMode.COMM_MULTI_THREAD and 0 < thread_rank.size < rank_size:
        _bad(f"rank_size is {rank_size}, but run_ranks has started {thread_rank.size} threads")


def _bad(message: str) -> NoReturn:
    raise_status(ErrorCode.ERROR_INVALID_PARAM, f"init: {message}")
