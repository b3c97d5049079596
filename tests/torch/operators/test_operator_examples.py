"""The examples of the operators' wrappers run."""

from __future__ import annotations

import doctest
import importlib

import pytest

pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["rows", "products"])
def test_examples_run(name: str) -> None:
    module = importlib.import_module(f"collops.torch.operators.{name}")
    failed, tried = doctest.testmod(module)
    assert tried > 0
    assert failed == 0
