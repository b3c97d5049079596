"""What torch calls when it is imported: makes the name "collops" known to torch.distributed.

The entry point in pyproject.toml names register(). The rest of collops.torch is imported when a
program makes its first group.
"""

from __future__ import annotations

import importlib
from typing import Any


def register() -> None:
    """Registers the backend; does nothing in a torch that has no torch.distributed."""
    distributed = importlib.import_module("torch.distributed")
    if distributed.is_available() and "collops" not in distributed.Backend.backend_list:
        # A list: torch walks a text by its letters.
        distributed.Backend.register_backend(
            "collops", _create, extended_api=True, devices=["cpu", "cuda"]
        )


def _create(options: Any, backend_options: Any) -> Any:
    from collops.torch.backend import create

    return create(options, backend_options)
