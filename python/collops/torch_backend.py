"""What torch calls when it is imported: makes the name "collops" known to torch.distributed.

The entry point in pyproject.toml names register(). The rest of collops.torch is imported when a
program makes its first group.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from collops.torch_gloo import may_be_meant, stand_in_front


class Devices(Sequence[str]):
    """The types of devices that the bare name "collops" stands for: "cpu", and what is there.

    torch reads them when a group is made. Before that nobody looks for devices, so that importing
    torch starts no driver.
    """

    def __iter__(self) -> Iterator[str]:
        yield "cpu"
        torch = importlib.import_module("torch")
        for name in ("cuda", "npu"):  # torch_npu adds the second
            # Counted by NVML where that is possible: a process that has started CUDA cannot fork.
            if (module := getattr(torch, name, None)) is not None and module.device_count() > 0:
                yield name

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __len__(self) -> int:
        return len(list(self))

    def __repr__(self) -> str:
        return repr(list(self))


def register() -> None:
    """Registers the backend; does nothing in a torch that has no torch.distributed."""
    distributed: Any = importlib.import_module("torch.distributed")
    if distributed.is_available() and "collops" not in distributed.Backend.backend_list:
        # A list: torch walks a text by its letters.
        distributed.Backend.register_backend("collops", _create, extended_api=True, devices=["cpu"])
        distributed.Backend.backend_capability["collops"] = Devices()
        # A torch with this set attaches a recorder to groups of other backends, for which they need
        # a backend in C++. A group of collops keeps its own log of calls.
        c10d = distributed.distributed_c10d
        recording: set[str] = getattr(c10d, "_FR_SELF_RECORDING_BACKENDS", set())
        recording.add("collops")
        own = _in_front(distributed.init_process_group, distributed.DistNetworkError)
        distributed.init_process_group = c10d.init_process_group = own
        if hasattr(distributed, "shrink_group"):  # from torch 2.10 on
            distributed.shrink_group = c10d.shrink_group = _shrink_group(distributed.shrink_group)
        helper = "_new_process_group_helper"  # in torch 2.9 to 2.15
        if hasattr(c10d, helper):
            setattr(c10d, helper, stand_in_front(c10d, getattr(c10d, helper)))


def _create(options: Any, backend_options: Any) -> Any:
    from collops.torch.backend import create

    return create(options, backend_options)


def _in_front(torchs: Callable[..., Any], lost: type[Exception]) -> Callable[..., Any]:
    """torch's init_process_group, whose stores do not hide from a group which rank is missing."""

    @functools.wraps(torchs)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        backend = args[0] if args else kwargs.get("backend")
        if "collops" not in str(backend).lower() and not may_be_meant(backend):
            return torchs(*args, **kwargs)
        try:
            with _stores_that_wait_for_no_rank(lost):
                return torchs(*args, **kwargs)
        except lost as error:
            from collops.torch.backend import refuse_without_store

            refuse_without_store(error)

    return init_process_group


def _shrink_group(torchs: Callable[..., Any]) -> Callable[..., Any]:
    """torch's shrink_group, which itself makes a smaller group of a backend in C++ alone."""

    @functools.wraps(torchs)
    def shrink_group(
        ranks_to_exclude: Any, group: Any = None, shrink_flags: int = 0, pg_options: Any = None
    ) -> Any:
        found = group or importlib.import_module("torch.distributed").group.WORLD
        if not type(found).__module__.startswith("collops."):
            return torchs(ranks_to_exclude, group, shrink_flags, pg_options)
        from collops.torch.shrinking import shrink_group

        return shrink_group(ranks_to_exclude, found, shrink_flags)

    return shrink_group


@contextlib.contextmanager
def _stores_that_wait_for_no_rank(lost: type[Exception]) -> Iterator[None]:
    """Keeps rank 0 from waiting, as it makes its TCPStore, for ranks that it could not name."""
    module: Any = importlib.import_module("torch.distributed.rendezvous")
    store = module.TCPStore

    def made(
        host_name: str,
        port: int,
        world_size: Any = None,
        is_master: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        kwargs["wait_for_workers"] = False
        try:
            return store(host_name, port, world_size, is_master, *args, **kwargs)
        except lost as error:
            if not is_master:
                raise
            from collops.torch.backend import refuse_without_own_store

            refuse_without_own_store(port, error)

    module.TCPStore = made
    try:
        yield
    finally:
        module.TCPStore = store
