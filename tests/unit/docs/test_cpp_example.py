"""The C++ examples build against the installed headers and library, and run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run(*command: str | Path, **variables: str) -> str:
    """Runs a command that must succeed, with these variables besides the environment's."""
    done = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_examples_build_against_the_installed_package(core_prefix: Path, tmp_path: Path) -> None:
    run(
        "cmake",
        "-S",
        ROOT / "examples" / "cpp",
        "-B",
        tmp_path,
        f"-DCMAKE_PREFIX_PATH={core_prefix}",
    )
    run("cmake", "--build", tmp_path)
    assert "gathered on each of them" in run(tmp_path / "uneven_gather")
    said = run(tmp_path / "atb_program", COLLOPS_BACKEND="shm", COLLOPS_JOB_ID=str(tmp_path))
    assert said == "4 ranks gathered their rows and multiplied on a grid\n"
    ranks = [sys.executable, "-m", "collops", "run", "-n", "4", tmp_path / "atb_program"]
    assert run(*ranks, COLLOPS_BACKEND="shm") == ""


def test_installed_headers_stand_alone(core_prefix: Path, tmp_path: Path) -> None:
    """Each public header compiles by itself, with nothing but the installed folder."""
    include = core_prefix / "include"
    headers = sorted((include / "collops").rglob("*.h"))
    assert len(headers) > 5
    for header in headers:
        source = tmp_path / "one.cpp"
        source.write_text(f'#include "{header.relative_to(include)}"\n')
        flags = ["-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
        run("g++", *flags, "-I", include, source)
