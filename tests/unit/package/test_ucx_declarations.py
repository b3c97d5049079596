"""What the backend declares of UCX against the headers of PyPI's wheel, by a compiler."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "tests" / "cpp" / "ucx" / "declarations.cpp"


def wheel_headers() -> Path:
    """The wheel's headers, or the system's; skips the test where there are none."""
    spec = importlib.util.find_spec("libucx")
    folders = list(spec.submodule_search_locations or []) if spec else []
    for folder in [*(Path(found) / "include" for found in folders), Path("/usr/include")]:
        if (folder / "ucp" / "api" / "ucp.h").exists():
            return folder
    pytest.skip("UCX's headers are not installed: pip install libucx-cu13")


def compile_with(folder: Path) -> subprocess.CompletedProcess[str]:
    """Compiles the comparison with our header of a folder."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or "c++"
    command = [compiler, "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    command += [f"-I{folder}", f"-isystem{wheel_headers()}", str(SOURCE)]
    return subprocess.run(command, capture_output=True, text=True)


def test_our_declarations_are_those_of_ucx() -> None:
    done = compile_with(ROOT / "ops")
    assert done.returncode == 0, done.stderr
