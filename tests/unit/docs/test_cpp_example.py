"""The C++ example builds against the installed headers and library, and runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Where the core was built for the package.
BUILD = ROOT / "build" / f"cmake-{sys.implementation.cache_tag}"


def run(*command: str | Path) -> str:
    """Runs a command that must succeed."""
    done = subprocess.run(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which collops is installed for C++."""
    if shutil.which("cmake") is None or not (BUILD / "ops" / "libcollops.a").exists():
        pytest.skip(f"the core is not built in {BUILD} (make test does that)")
    prefix = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", prefix, "--component", "Unspecified")
    return prefix


def test_example_builds_against_the_installed_package(prefix: Path, tmp_path: Path) -> None:
    run("cmake", "-S", ROOT / "examples" / "cpp", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    assert "gathered on each of them" in run(tmp_path / "uneven_gather")


def test_installed_headers_stand_alone(prefix: Path, tmp_path: Path) -> None:
    """Each public header compiles by itself, with nothing but the installed folder."""
    include = prefix / "include"
    headers = sorted((include / "collops").rglob("*.h"))
    assert len(headers) > 5
    for header in headers:
        source = tmp_path / "one.cpp"
        source.write_text(f'#include "{header.relative_to(include)}"\n')
        flags = ["-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
        run("g++", *flags, "-I", include, "-I", include / "collops", source)
