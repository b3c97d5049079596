"""Builds the programs: that of collops by CMake, those of the MPIs by their own mpicxx."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from machine import first_line
from peers import COLLOPS, ROOT, Peer, mpi_peers

if TYPE_CHECKING:
    from collops.bench.peers.mpi_launcher import Mpi

BENCH = ROOT / "bench"
# The package's own build, if there is one: a second build of the core would take minutes.
PACKAGE_BUILD = ROOT / "build" / f"cmake-{sys.implementation.cache_tag}"
# As collops itself, and with all instructions of this machine for the sums that MPI's ways make.
MPI_FLAGS = ["-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-DNDEBUG"]
MPI_FLAGS += ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow"]
_LIMIT_S = 1800


class NotBuiltError(RuntimeError):
    """A program cannot be built; the text says why."""


def build_collops(folder: Path, prefix: Path | None = None) -> Peer:
    """Builds collops's program in a folder.

    Args:
        folder: where it is built.
        prefix: where collops is installed; None: this checkout is built and installed first.

    Raises:
        NotBuiltError: a tool is missing, or the build failed.
    """
    if shutil.which("cmake") is None:
        raise NotBuiltError("cmake is missing (pip install cmake)")
    if prefix is None:
        prefix = _install_core(folder)
    build = folder / COLLOPS
    # A kept cache may lead to another installed collops.
    (build / "CMakeCache.txt").unlink(missing_ok=True)
    options = [f"-DCMAKE_PREFIX_PATH={prefix.resolve()}", f"-DCOLLOPS_WERROR={_warnings_end()}"]
    _run("cmake", "-S", BENCH, "-B", build, *options)
    _run("cmake", "--build", build, "-j", _jobs())
    program = build / "collops_bench"
    return Peer(COLLOPS, program, first_line([str(program), "--version"]))


def build_mpi(mpi: Mpi, folder: Path, settings: list[str]) -> list[Peer]:
    """Builds an MPI's program in a folder; a peer for each of the settings (empty: all).

    Raises:
        NotBuiltError: the MPI has no compiler or no header, or the build failed.
    """
    compiler = Path(mpi.program).parent / "mpicxx"
    if not os.access(compiler, os.X_OK):
        raise NotBuiltError(f"{mpi.name}: there is no mpicxx beside {Path(mpi.program).name}")
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / f"{mpi.name.lower().replace(' ', '_')}_bench"
    sources = [*sorted((BENCH / "mpi").glob("*.cpp")), *sorted((BENCH / "measure").glob("*.cpp"))]
    flags = [*MPI_FLAGS, *(["-Werror"] if _warnings_end() == "ON" else [])]
    environment = {**os.environ, **mpi.environment}
    _run(compiler, *flags, "-I", BENCH, *sources, "-o", program, environment=environment)
    version = first_line([str(program), "--version"], environment)
    return mpi_peers(mpi, program, version, settings)


def compiler_version() -> str:
    """What the C++ compiler says of itself."""
    return first_line([os.environ.get("CXX", "c++"), "--version"])


def _install_core(folder: Path) -> Path:
    """Builds and installs this checkout's core, in the package's build if there is one."""
    build = PACKAGE_BUILD
    if not (build / "CMakeCache.txt").exists():
        build = folder / "core"
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=OFF"]
        options += [f"-DPython_EXECUTABLE={sys.executable}"]  # its pip may have the JSON headers
        _run("cmake", "-S", ROOT, "-B", build, *options)
    _run("cmake", "--build", build, "--target", "collops", "-j", _jobs())
    prefix = folder / "prefix"
    shutil.rmtree(prefix, ignore_errors=True)
    _run("cmake", "--install", build, "--prefix", prefix, "--component", "Unspecified")
    return prefix


def _warnings_end() -> str:
    """Whether a warning is an error: where all compilers are known."""
    return "ON" if os.environ.get("CI") else "OFF"


def _jobs() -> str:
    return str(len(os.sched_getaffinity(0)))


def _run(*words: str | Path, environment: dict[str, str] | None = None) -> None:
    command = [str(word) for word in words]
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LIMIT_S,
            check=False,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise NotBuiltError(f"{Path(command[0]).name}: {problem}") from None
    if done.returncode != 0:
        lines = done.stdout.splitlines()
        shown = [line for line in lines if "rror" in line][:3] or lines[-3:]
        raise NotBuiltError(f"{Path(command[0]).name} failed: {' | '.join(shown)}")
