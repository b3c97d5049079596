"""Every public function and class of the package has an example, and the examples run."""

from __future__ import annotations

import doctest
import importlib
import inspect

import pytest

import collops

MODULES = (
    "collectives.communicator",
    "collectives.cuda_arrays",
    "collectives.exchanged_products",
    "collectives.gathers",
    "collectives.messages",
    "collectives.moe",
    "collectives.products",
    "collectives.reductions",
    "collectives.started",
    "cuda_array",
    "errors",
    "launch.init",
    "atb.operation",
    "atb.collective_params",
    "atb.torch_atb",
    "tensors",
    "testing.marks",
    "testing.run",
    "trace",
)
# Named by their class, explained by the error that carries them.
WITHOUT_EXAMPLE = {"CommMode", "ErrorCode"}


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"collops.{name}"))
    assert tried > 0
    assert failed == 0


def test_public_names_have_examples() -> None:
    missing = []
    for name in set(collops.__all__) - WITHOUT_EXAMPLE:
        value = getattr(collops, name)
        if (
            inspect.isclass(value)
            and issubclass(value, collops.Error)
            and value is not collops.Error
        ):
            continue
        if callable(value) and ">>>" not in inspect.getdoc(value):  # type: ignore[operator]
            missing.append(name)
    assert missing == []
