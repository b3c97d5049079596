"""Golden runs wherever it lies, and its examples are there and true."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import shutil
import sys
from pathlib import Path

import pytest

from patience import patience
from tests import programs

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "golden").rglob("*.py"))
NAMES = [str(path.relative_to(ROOT / "golden")) for path in SOURCES]
MODULES = [name[:-3].replace("/", ".") for name in NAMES if "__" not in name] + ["explain"]


def test_the_program_works_under_another_name(tmp_path: Path) -> None:
    """As it is installed: below a package, with no folder `golden` in sight."""
    package = tmp_path / "outer" / "golden"
    shutil.copytree(ROOT / "golden", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package.parent / "__init__.py").touch()
    code = (
        "import sys, runpy; sys.argv[1:] = ['list', '--filter', 'p2.shares-even'];"
        "names = ('collops', 'ml_dtypes', 'torch', 'golden', 'matplotlib');"
        "sys.modules.update(dict.fromkeys(names));"
        "runpy.run_module('outer.golden', run_name='__main__', alter_sys=True)"
    )
    done = programs.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=patience(60),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("4 cases\n")
    assert done.stderr == ""


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name: str) -> None:
    module = importlib.import_module(f"golden.{name}")
    result = doctest.testmod(module)
    assert result.failed == 0
    assert result.attempted > 0


@pytest.mark.parametrize("name", MODULES)
def test_public_functions_and_classes_have_an_example(name: str) -> None:
    module = importlib.import_module(f"golden.{name}")
    for public, item in vars(module).items():
        home = getattr(item, "__module__", None)
        if public.startswith("_") or home != module.__name__:
            continue
        if inspect.isfunction(item) or inspect.isclass(item):
            text = inspect.getdoc(item) or ""
            assert ">>>" in text or public == "read_cases", f"{name}.{public} has no example"
