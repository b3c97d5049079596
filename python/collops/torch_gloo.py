"""COLLOPS_AS=gloo: groups that a program makes with gloo are groups of collops.

Programs such as Trainer and Lightning name gloo themselves. torch_backend puts this in front of the
function with which torch makes a group, so nothing of collops.torch is imported here before a group
of gloo is asked for.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterator
from typing import Any

from collops.errors import ErrorCode, raise_status, status_error

VARIABLE = "COLLOPS_AS"
GLOO = "gloo"
# The keys of a group's store by which its ranks tell whether they have the variable.
_HAS, _LACKS = "collops/as/has", "collops/as/lacks"


def is_set() -> bool:
    """Whether groups of gloo are made with collops; another value is an error."""
    value = os.environ.get(VARIABLE, "")
    if value in ("", GLOO):
        return value == GLOO
    from collops.core import core

    message = next(text for name, _, text in core().env_problems() if name == VARIABLE)
    return raise_status(ErrorCode.ERROR_INVALID_PARAM, message)


def may_be_meant(backend: Any) -> bool:
    """Whether what init_process_group is given may be gloo for which collops stands."""
    return _may_have_gloo(backend) and is_set()


def _may_have_gloo(backend: Any) -> bool:
    return backend is None or str(backend).lower() == "undefined" or GLOO in str(backend).lower()


def stand_in_front(functions: Any, torchs: Callable[..., Any]) -> Callable[..., Any]:
    """torch's function that makes a group, which makes one of collops where gloo is asked for.

    Only on CPUs, and where the variable is set.

    Args:
        functions: the module of torch.distributed's functions.
        torchs: the one of them that makes a group.
    """
    signature = inspect.signature(torchs)

    @functools.wraps(torchs)
    def make(*args: Any, **kwargs: Any) -> Any:
        asked = signature.bind(*args, **kwargs)
        words = asked.arguments
        if not _may_have_gloo(words["backend"]):
            return torchs(*args, **kwargs)
        kinds = functions.BackendConfig(words["backend"]).get_device_backend_map()
        rank, name = words["group_rank"], words["group_name"]
        if kinds.get("cpu") != GLOO or rank is None or rank < 0:  # or not in the group
            return torchs(*args, **kwargs)
        store = functions.PrefixStore("cpu/", functions.PrefixStore(f"{name}/", words["store"]))
        marks = Marks(store, words["group_size"])
        if not is_set():
            with marks.of_gloo(rank, name):
                return torchs(*args, **kwargs)
        marks.of_collops(rank)
        return _stand_in(functions, torchs, asked, kinds)

    return make


def _stand_in(functions: Any, torchs: Callable[..., Any], asked: Any, kinds: Any) -> Any:
    """A group of collops under the name of gloo, with another beside it for other devices."""
    words, others = asked.arguments, None
    backend, name = words["backend"], words["group_name"]
    beside = {device: kind for device, kind in kinds.items() if kind != GLOO}
    if beside:
        words["backend"] = functions.Backend(",".join(":".join(pair) for pair in beside.items()))
        words["group_name"] = f"{name}/beside collops"
        others, _ = torchs(*asked.args, **asked.kwargs)
        _forget(functions, others)
    words["backend"], words["group_name"] = functions.Backend("collops"), name
    group, store = torchs(*asked.args, **asked.kwargs)
    if others is not None:
        group.leave_other_devices_to(others)
    functions._world.pg_map[group] = (backend, store)
    functions._world.pg_backend_config[group] = str(functions.BackendConfig(backend))
    return group, store


def _forget(functions: Any, group: Any) -> None:
    """Leaves a group to the one that has it: torch neither lists it nor shuts it down itself."""
    world = functions._world
    for table in (world.pg_map, world.pg_names, world.pg_backend_config, world.pg_to_tag):
        table.pop(group, None)
    for tagged in world.tags_to_pg.values():
        if group in tagged:
            tagged.remove(group)


class Marks:
    """What the ranks of a group write into its store, so that an error names those that lack the
    variable if others have it. A group of gloo costs it two to four requests to the store.
    """

    def __init__(self, store: Any, size: int) -> None:
        self._store, self._size = store, size

    def of_collops(self, rank: int) -> None:
        """Notes that a rank has the variable."""
        self._note(_HAS, rank)

    @contextlib.contextmanager
    def of_gloo(self, rank: int, name: str) -> Iterator[None]:
        """Around the making of a group by a rank that lacks it, which may wait for the others."""
        with contextlib.suppress(Exception):  # a store of the program's own may not know check()
            self._note(_LACKS, rank)
        self._refuse_mixture(name, None)
        try:
            yield
        except Exception as error:
            self._refuse_mixture(name, error)
            raise

    def fault(self) -> str:
        """What is wrong if some of the ranks that have come have the variable; "": nothing."""
        if not self._store.check([_HAS]) or not self._store.check([_LACKS]):
            return ""
        having, lacking = (
            [rank for rank in range(self._size) if self._store.check([f"{key}/{rank}"])]
            for key in (_HAS, _LACKS)
        )
        return (
            f"{VARIABLE}=gloo is set on {_named(having)}, but not on {_named(lacking)}: set it on "
            "all ranks or on none"
        )

    def _note(self, key: str, rank: int) -> None:
        self._store.set(f"{key}/{rank}", "1")
        self._store.set(key, "1")

    def _refuse_mixture(self, name: str, error: Exception | None) -> None:
        fault = ""
        with contextlib.suppress(Exception):
            fault = self.fault()
        if fault:
            message = f"group {name!r}: {fault}"
            raise status_error(ErrorCode.ERROR_RANK_MISMATCH, message) from error


def _named(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
