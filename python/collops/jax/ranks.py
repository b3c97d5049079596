"""The ranks of a program of JAX: those of jax.distributed, or of the launcher."""

from __future__ import annotations

import atexit
import functools
import itertools
import json
from typing import TYPE_CHECKING, Any

import jax

import collops
from collops.errors import ErrorCode, raise_status
from collops.jax.private import distributed
from collops.launch.place import connect, limit_of_variable, own_address, place_of, this_process

if TYPE_CHECKING:
    from collops.collectives.communicator import Communicator

_ADVICE = "pass jax.distributed.initialize() an address that the other hosts can reach"
_WAIT_S = 300.0  # as collops.init() waits
_meetings = itertools.count()
_last: list[Communicator] = []


def init(timeout_s: float | None = None) -> Communicator:
    """Returns the communicator of the program's ranks, after first contact with all of them.

    The ranks are the processes of jax.distributed where it is initialized, on one host or several;
    else those of collops.init(). The functions of collops.jax call it where they get no `comm`.

    Args:
        timeout_s: seconds that a call waits for other ranks; None: COLLOPS_TIMEOUT_S, or 300.

    Returns:
        The communicator; the same one as long as it is open.

    Raises:
        RankTimeoutError: a rank did not come; the message names it.
        Error: as collops.init().

    Example, in each process:
        jax.distributed.initialize("10.0.0.1:1234", num_processes=2, process_id=rank)
        comm = collops.jax.init()
    """
    if _last and not (_last[0]._is_closed or _last[0]._core.failed):
        return _last[0]
    _last.clear()
    if jax.distributed.is_initialized():
        made = _meet(timeout_s)
    else:
        made = collops.init(timeout_s=timeout_s)
    _finish_calls_at_exit()
    _last.append(made)
    return made


@functools.cache
def _finish_calls_at_exit() -> None:
    """Programs that still run make their calls before the communicators are closed."""
    atexit.register(jax.effects_barrier)


def _meet(timeout_s: float | None) -> Communicator:
    """The ranks write what they are into jax.distributed's store, and read where to connect."""
    state = distributed.global_state
    rank, size, store = state.process_id, state.num_processes, state.client
    keys = f"collops/{next(_meetings)}"
    wait_s = limit_of_variable(_WAIT_S) if timeout_s is None else timeout_s
    near = state.coordinator_address.rpartition(":")[0].strip("[]")
    own = this_process(own_address(near))
    store.key_value_set(f"{keys}/rank/{rank}", json.dumps(own))
    port: Any = None  # of rank 0, which has to stay open until all have connected
    if rank == 0:
        come = [_read(store, f"{keys}/rank/{one}", one, size, wait_s) for one in range(size)]
        place, port = place_of(come, _ADVICE)
        store.key_value_set(f"{keys}/place", json.dumps(place))
    else:
        place = _read(store, f"{keys}/place", 0, size, wait_s)
    made = connect(place, rank, size, "jax", timeout_s)
    del port
    return made


def _read(store: Any, key: str, rank: int, size: int, wait_s: float) -> Any:
    """What a rank has written into the store of jax.distributed."""
    try:
        return json.loads(store.blocking_key_value_get(key, int(1000 * wait_s)))
    except jax.errors.JaxRuntimeError as error:
        raise_status(
            ErrorCode.ERROR_TIMEOUT,
            f"init: rank {rank} of {size} did not come to the meeting of jax.distributed within "
            f"{wait_s:g} s: {error}",
        )
