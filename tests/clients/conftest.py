"""collops inside real programs, which `make test-clients` installs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Each test starts a program of its own, with ranks of its own, and takes a minute.
collect_ignore_glob = [] if os.environ.get("COLLOPS_TEST_CLIENTS") else ["*"]


def pytest_report_header(config: pytest.Config) -> str | None:
    """Where this folder is asked for: why there is nothing to run."""
    return (
        "tests/clients: these programs come with `make test-clients`"
        if collect_ignore_glob
        else None
    )


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny models, by name."""
    from tests.clients.models import make

    folder = tmp_path_factory.mktemp("models")
    make(folder)
    return folder
