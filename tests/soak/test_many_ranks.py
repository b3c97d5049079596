"""Far more ranks than cores start, call and close, in a bounded time."""

from __future__ import annotations

import pytest

from patience import patience
from tests.soak.many_ranks import start_run_close

LIMIT_S = patience(60.0)


def test_16_ranks() -> None:
    assert start_run_close(16, LIMIT_S) < LIMIT_S


@pytest.mark.load
def test_128_ranks() -> None:
    """As many as a communicator may have."""
    assert start_run_close(128, LIMIT_S) < LIMIT_S
