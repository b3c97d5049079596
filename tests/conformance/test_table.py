"""The conformance table covers all operators, memory, levels, dtypes, shapes and shares."""

from __future__ import annotations

import pytest
from collops.golden.cases import OPERATORS

from tests.conformance.conformance_table import TABLE


def test_every_operator_has_a_row() -> None:
    assert set(OPERATORS) <= set(TABLE)


@pytest.mark.parametrize("operator", TABLE)
def test_every_row_walks_each_axis(operator: str) -> None:
    runs = TABLE[operator].runs
    assert len(set(runs)) == len(runs)
    memories = {run.memory for run in runs}
    if operator in ("send", "recv"):
        assert memories == {"plain", "npu", "cuda"}
    else:
        assert memories >= {"plain", "window"}
        assert "unaligned" in memories or operator.endswith("large")
    backends, without = {run.backend for run in runs}, set(TABLE[operator].without)
    assert backends | without == {"shm", "hccl", "cuda", "nccl"} and not backends & without
    devices = {"hccl": "npu", "cuda": "cuda", "nccl": "cuda"}
    assert all(run.memory == devices.get(run.backend, run.memory) for run in runs)
    assert all(run.on_device == (run.backend in devices) for run in runs)
    assert {run.threads for run in runs} == {False} if "large" in operator else {False, True}
    least = {"send": 1, "recv": 1, "linear_parallel, large": 3, "all_reduce, quantised": 6}.get(
        operator, 15
    )
    assert min(len(TABLE[operator].cases(run)) for run in runs) >= least
