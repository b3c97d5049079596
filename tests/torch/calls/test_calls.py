"""Every call of torch.distributed on a collops group, sync, async and by its future."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from patience import patience

torch = pytest.importorskip("torch")

from tests.torch.calls import (  # noqa: E402
    message_rows,
    moving_rows,
    reduction_rows,
)
from tests.torch.calls.call_table import ROWS, Mode, Row  # noqa: E402
from tests.torch.groups import run_group  # noqa: E402

assert message_rows and moving_rows and reduction_rows  # they fill the table
SIZES = (1, 2, 3)


Value = tuple[str, list[int], bytes]


def value(x: torch.Tensor) -> Value:
    """Type, shape and bytes of a tensor: not every type of torch pickles."""
    flat = x.detach().contiguous().reshape(-1).view(torch.uint8)
    return str(x.dtype), list(x.shape), flat.numpy().tobytes()


def outcomes(rank: int, size: int, backend: str) -> dict[tuple[str, str], Any]:
    """The tensors, or the error, of each row in each mode; for gloo of those it is asked about."""
    found: dict[tuple[str, str], Any] = {}
    for row in ROWS:
        if not row.runs_with(size) or (backend == "gloo" and row.expected is not None):
            continue  # gloo ends the process in some of these
        for mode in row.modes:
            try:
                found[row.id, mode] = [value(x) for x in row.work(Mode(mode), rank, size)]
            except Exception as error:
                found[row.id, mode] = f"{type(error).__name__}: {error}"
    return found


@functools.cache
def outcomes_of_ranks(size: int, backend: str) -> list[dict[tuple[str, str], Any]]:
    """The outcomes on every rank of a group."""
    return run_group(outcomes, size, size, backend, backend=backend, timeout_s=patience(10))


@pytest.mark.parametrize(
    ("row", "size"),
    [
        pytest.param(row, size, id=f"{row.id}-{size}")
        for row in ROWS
        for size in SIZES
        if row.runs_with(size)
    ],
)
def test_a_call(row: Row, size: int) -> None:
    ranks = outcomes_of_ranks(size, "collops")
    if row.expected is None:
        others = outcomes_of_ranks(size, "gloo")
        expected = [others[rank][row.id, "sync"] for rank in range(size)]
    else:
        expected = [[value(x) for x in row.expected(rank, size)] for rank in range(size)]
    for rank in range(size):
        for mode in row.modes:
            found = ranks[rank][row.id, mode]
            assert not isinstance(found, str), (mode, rank, found)
            assert found == expected[rank], (mode, rank)
