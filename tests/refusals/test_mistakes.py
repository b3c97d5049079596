"""Typical mistakes and their messages, word for word: mistakes.txt."""

from __future__ import annotations

import ctypes.util
import os
from collections.abc import Iterator
from functools import cache

import pytest
from mistake_table import Mistake, read, run_alone, run_on_two, write

UPDATES = os.environ.get("COLLOPS_UPDATE_MISTAKES") == "1"
ROWS = read()
# Engines whose absence the section "device" is about. They are not asked: a child of fork() could
# not use them then.
AVAILABLE = [name for name in ("cuda", "hccl") if ctypes.util.find_library(name)]
heard: dict[str, list[str]] = {}


@pytest.fixture(scope="module", autouse=True)
def update() -> Iterator[None]:
    """Writes the file in the end, if that is wanted."""
    yield
    if UPDATES:
        write(ROWS, heard)


@cache
def of_two_ranks() -> dict[str, list[str]]:
    return run_on_two([row for row in ROWS if row.on_two_ranks])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_mistake_gets_its_message(row: Mistake) -> None:
    if row.section == "torch":
        pytest.importorskip("torch", reason="torch is not installed here")
    if row.section == "device" and AVAILABLE:
        pytest.skip(f"this machine has {', '.join(AVAILABLE)}")
    heard[row.name] = of_two_ranks()[row.name] if row.on_two_ranks else run_alone(row)
    if not UPDATES:
        assert heard[row.name] == row.message


def test_the_table_has_at_least_100_rows_and_no_row_passes() -> None:
    names = [row.name for row in ROWS]
    assert len(names) >= 100
    assert len(set(names)) == len(names)
    for row in ROWS:
        assert row.program, row.name
        assert any(not text.endswith("no error") for text in row.message), row.name
