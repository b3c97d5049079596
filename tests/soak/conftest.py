"""Leaves out what takes long, unless pytest is told to take it: `-m load`, as `make soak` does."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("-m"):
        return
    long = [item for item in items if item.get_closest_marker("load")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]
