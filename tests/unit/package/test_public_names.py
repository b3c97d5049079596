"""One spelling for a call, and no name that means a module here and a function there."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re

import pytest

import collops

PACKAGES = [
    *("collops", "collops.testing", "collops.golden", "collops.golden.case_files"),
    *("collops.golden.compare", "collops.golden.data"),
    *("collops.torch", "collops.torch.operators"),
]


@pytest.mark.parametrize("name", PACKAGES)
def test_no_module_has_the_name_of_a_function_of_its_package(name: str) -> None:
    if name.startswith("collops.torch"):
        pytest.importorskip("torch", reason="torch is not installed here")
    package = importlib.import_module(name)
    for module in pkgutil.iter_modules(package.__path__):
        exported = getattr(package, module.name, None)
        if module.name in getattr(package, "__all__", ()):
            assert exported is importlib.import_module(f"{name}.{module.name}")


def test_calls_of_uneven_blocks_are_spelt_as_torch_and_nccl_spell_them() -> None:
    """all_gatherv in Python, AllGatherV in C++ and in the structs."""
    names = [*collops.__all__, *dir(collops.Communicator)]
    assert {"all_gatherv", "reduce_scatterv", "all_to_allv", "gatherv", "scatterv"} <= {*names}
    assert [name for name in names if re.search(r"[a-z]_v\b", name) and name[0] != "_"] == []
