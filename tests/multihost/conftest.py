"""Two and three hosts for a test, gone after it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.multihost.hosts import Host, Unavailable, network

# Without the C++ programs nothing here is collected: `make test-multihost` builds them.
collect_ignore_glob = [] if os.environ.get("COLLOPS_TEST_PROGRAMS") else ["test_*.py"]


def hosts_of_test(size: int) -> Iterator[list[Host]]:
    """So many hosts, or a skip with the reason."""
    try:
        with network(size) as hosts:
            yield hosts
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def two_hosts() -> Iterator[list[Host]]:
    """Two hosts, joined by a cable."""
    yield from hosts_of_test(2)


@pytest.fixture
def three_hosts() -> Iterator[list[Host]]:
    """Three hosts, joined by a switch."""
    yield from hosts_of_test(3)
