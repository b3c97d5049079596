"""`import collops` loads nothing heavy, and what needs no core works without one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import collops
from patience import patience

ROOT = Path(__file__).resolve().parents[3]
NO_CORE = "import sys; sys.modules['collops._core'] = None; "


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_nothing_heavy() -> None:
    heavy = "('numpy', 'torch', 'ml_dtypes', 'multiprocessing', 'collops._core')"
    assert run(f"import collops, sys; print([m for m in {heavy} if m in sys.modules])") == "[]"


def test_the_core_is_loaded_when_it_is_needed_and_torch_never() -> None:
    code = (
        "import collops, sys; collops.AllGatherVParam().to_json(); "
        "print('collops._core' in sys.modules, 'torch' in sys.modules)"
    )
    assert run(code) == "True False"


def test_every_public_name_can_be_had() -> None:
    assert set(collops.__all__) <= set(dir(collops))
    for name in collops.__all__:
        assert getattr(collops, name) is not None


def test_the_torch_package_must_be_imported() -> None:
    code = """
import collops
try:
    collops.torch
except AttributeError as error:
    print(error)
"""
    assert run(code) == "module 'collops' has no attribute 'torch'; import collops.torch first"


def test_init_is_the_function_whatever_was_imported_first() -> None:
    assert run("import collops.launch.init, collops; print(collops.init.__name__)") == "init"


@pytest.mark.parametrize(
    "code",
    [
        "collops.golden.__doc__",
        "collops.AllGatherVParam(rank=1, rank_size=2)",
        "collops.TensorDesc((2, 3), 'float16')",
        "collops.with_format",
        "collops.testing.run_ranks(divmod, 2, 7)",
        "collops.Error(1, 'text').name",
    ],
)
def test_works_without_the_core(code: str) -> None:
    assert run(f"{NO_CORE}import collops; print({code})")


@pytest.mark.parametrize(
    "code",
    [
        "collops.init(0, 1)",
        "collops.Operation(collops.AllGatherVParam(rank=0, rank_size=2))",
        "collops.AllGatherVParam().to_json()",
    ],
)
def test_run_without_the_core_names_what_is_missing(code: str) -> None:
    program = (
        f"{NO_CORE}import collops\ntry: {code}\nexcept NotImplementedError as error: print(error)"
    )
    printed = run(program)
    assert printed.startswith("collops cannot load its C++ core: ")
    assert printed.endswith("[ERROR_UNSUPPORTED]")


def test_in_a_folder_of_sources_the_reason_names_the_folder(tmp_path: Path) -> None:
    made = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "python" / "collops", tmp_path / "collops", ignore=made)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import collops\n"
        "try: collops.init(0, 1)\nexcept NotImplementedError as error: print(error)"
    )
    assert f"{tmp_path}/collops has sources only: `pip install .`" in run(program)


def test_without_linux_the_reason_names_linux() -> None:
    program = (
        f"{NO_CORE}sys.platform = 'darwin'; import collops\n"
        "try: collops.init(0, 1)\nexcept collops.Error as error: print(error)"
    )
    assert "Linux only" in run(program)


def test_the_version_is_the_cores() -> None:
    from collops.core import core

    assert collops.__version__ == core().__version__
