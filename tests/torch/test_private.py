"""torch's private names stand in one module, whose errors and warning name versions."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from collops.torch import private  # noqa: E402

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "collops"
# Their own file, and the way to them that torch itself takes at its import.
MAY = {"torch/private.py", "torch_backend.py"}


def test_the_names_stand_in_one_module() -> None:
    files = [*PACKAGE.glob("torch_*.py"), *sorted((PACKAGE / "torch").rglob("*.py"))]
    assert len(files) > 30
    found = {
        str(file.relative_to(PACKAGE)): sorted(_private_names(ast.parse(file.read_text())))
        for file in files
    }
    assert {name: names for name, names in found.items() if names and name not in MAY} == {}


def _private_names(tree: ast.AST) -> Iterator[str]:
    """What a module imports or reads of torch's modules whose names begin with an underscore."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "torch"]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
            if not names[0].startswith(("torch.", "dist.")) or names[0].startswith("torch.ops."):
                continue
        else:
            continue
        yield from (
            name for name in names if re.search(r"\._(?!_)", name) or "distributed_c10d" in name
        )


def test_a_name_that_is_missing_is_an_error_that_names_the_versions() -> None:
    for asked, lacking in (
        (("torch._C._distributed_c10d", "NoSuchName"), "NoSuchName"),
        (("torch._no_such_module",), "_no_such_module"),
    ):
        with pytest.raises(ImportError) as refused:
            private.lookup(*asked)
        said = str(refused.value)
        assert lacking in said
        assert f"tested with torch 2.9 to 2.15; torch {torch.__version__} lacks" in said


def test_another_torch_is_said_to_be_unknown() -> None:
    for version, said in (("2.16.0a0+git123", "is newer"), ("2.8.0", "is older")):
        expected = f"tested with torch 2.9 to 2.15; torch {version} {said}"
        with pytest.warns(UserWarning, match=re.escape(expected)):
            private.warn_of(version)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for version in ("2.9.0", "2.13.0+cpu", "2.15.1"):
            private.warn_of(version)
