"""Builds collops._core with CMake; all metadata is in pyproject.toml."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
# Folders of the checkout that are installed below the package.
MAPPED = {"golden": "collops.golden", "examples": "collops.examples"}


def nvcc_folders() -> list[str]:
    """CMake's argument for the folders of an nvcc from PyPI (nvidia-cuda-nvcc), if there is one."""
    spec = importlib.util.find_spec("nvidia")
    found = [
        str(path.parent)
        for folder in (spec.submodule_search_locations or [] if spec else [])
        for path in sorted(Path(folder).glob("*/bin/nvcc"))
    ]
    return [f"-DCOLLOPS_NVCC_HINTS={';'.join(found)}"] if found else []


def configure_arguments() -> list[str]:
    """CMake's arguments, all of them explicit, so that they identify a build."""
    import pybind11

    arguments = [
        "-DCOLLOPS_PYTHON=ON",
        "-DBUILD_TESTING=OFF",
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
        *nvcc_folders(),
    ]
    if ninja := shutil.which("ninja"):
        arguments += ["-GNinja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    return arguments + shlex.split(os.environ.get("CMAKE_ARGS", ""))


class CMakeBuild(build_ext):
    """Configures and builds in build/cmake-TAG, which is kept, so that a second build is short."""

    def build_extension(self, ext: Extension) -> None:
        """Puts the extension where setuptools expects it."""
        cmake, folder = self.configure()
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
        subprocess.run([cmake, "--build", str(folder), "-j", jobs], check=True)
        target = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        install = [cmake, "--install", str(folder), "--component", "python", "--strip"]
        subprocess.run([*install, "--prefix", str(target)], check=True)

    def configure(self) -> tuple[str, Path]:
        """Lets CMake find all that the build needs; returns CMake and the build's folder."""
        cmake = shutil.which("cmake")
        if cmake is None:
            raise SystemExit("cmake not found: install the Debian package cmake, or pip's cmake")
        folder = ROOT / "build" / f"cmake-{sys.implementation.cache_tag}"
        arguments = configure_arguments()
        self._forget_other_tools(folder, "\n".join([cmake, *arguments]))
        subprocess.run([cmake, "-S", str(ROOT), "-B", str(folder), *arguments], check=True)
        return cmake, folder

    @staticmethod
    def _forget_other_tools(folder: Path, tools: str) -> None:
        # CMake keeps paths of the tools that configured it; those of an isolated build are gone.
        record = folder / "tools.txt"
        if folder.exists() and not (record.exists() and record.read_text() == tools):
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        record.write_text(tools)


class FreshBuildPy(build_py):
    """Starts from an empty folder: a module that was removed must not stay in the wheel."""

    def run(self) -> None:
        """Copies the modules, into a folder that holds nothing older."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


def packages() -> list[str]:
    """Every package of python/, and the mapped folders with their packages."""
    names = find_packages(str(ROOT / "python"))
    for folder, name in MAPPED.items():
        if (ROOT / folder).is_dir():
            names.append(name)
            names += [f"{name}.{inner}" for inner in find_packages(str(ROOT / folder))]
    return names


def package_folders() -> dict[str, str]:
    """Where setuptools finds the packages: python/, except for the mapped folders."""
    return {"": "python", **{name: folder for folder, name in MAPPED.items()}}


setup(
    packages=packages(),
    package_dir=package_folders(),
    # Elsewhere the package installs without a core; it says "Linux only" when one is needed.
    ext_modules=[Extension("collops._core", [])] if sys.platform == "linux" else [],
    cmdclass={"build_ext": CMakeBuild, "build_py": FreshBuildPy},
)
