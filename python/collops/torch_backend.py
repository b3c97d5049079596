"""What torch calls when it is imported: makes the name "collops" known to torch.distributed.

The entry point in pyproject.toml names register(). The rest of collops.torch is imported when a
program makes its first group.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any


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
    distributed = importlib.import_module("torch.distributed")
    if distributed.is_available() and "collops" not in distributed.Backend.backend_list:
        # A list: torch walks a text by its letters.
        distributed.Backend.register_backend("collops", _create, extended_api=True, devices=["cpu"])
        distributed.Backend.backend_capability["collops"] = Devices()
        # A torch with this set attaches a recorder to groups of other backends, for which they need
        # a backend in C++. A group of collops keeps its own log of calls.
        c10d = distributed.distributed_c10d
        recorded: set[str] = getattr(c10d, "_FR_SELF_RECORDING_BACKENDS", set())
        recorded.add("collops")


def _create(options: Any, backend_options: Any) -> Any:
    from collops.torch.backend import create

    return create(options, backend_options)
