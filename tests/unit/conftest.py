"""For the tests of the Python package: no communicator outlives the test that made it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_communicator_left() -> Iterator[None]:
    """Closes what the test process itself made; its next test may use the same domain."""
    yield
    core = sys.modules.get("collops._core")
    if core is not None:
        core.close_all("the test has ended")
