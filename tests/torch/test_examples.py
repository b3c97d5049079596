"""The examples of collops.torch run."""

from __future__ import annotations

import doctest
import importlib

import pytest

torch = pytest.importorskip("torch")

from collops.testing import run_ranks  # noqa: E402

GROUPS = ("", ".group")  # whose examples make the default group
MODULES = [
    *(".operators.rows", ".operators.products", ".async_tp.enable", ".async_tp.fused_products"),
    *(".serving.rows", ".serving.vllm", ".serving.sglang", ".uneven"),
    *(".fsdp", ".window_pool", ".accelerate", ".shrinking"),
]


def results(name: str) -> tuple[int, bool]:
    failed, tried = doctest.testmod(importlib.import_module(f"collops.torch{name}"))
    return failed, tried > 0


@pytest.mark.parametrize("name", [*GROUPS, *MODULES])
def test_examples_run(name: str) -> None:
    if name == ".accelerate":
        pytest.importorskip("accelerate")
    found = run_ranks(lambda _: results(name), 1)[0] if name in GROUPS else results(name)
    assert found == (0, True)
