"""Builds collops._core with CMake; all metadata is in pyproject.toml."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
# Seconds of processor time of a whole build by g++ 12, on an Intel core with AVX-512, and how many
# times as long cores take that are slower or shared with other programs.
WHOLE_BUILD_S = 210
SLOWER = 2.5
# What CMake installs beside the extension.
BESIDE = ("libcollops_c.so", "include", "collops_kernels.fatbin")
# Folders of the checkout that are installed below the package.
MAPPED = {"golden": "collops.golden", "examples": "collops.examples"}


def requirement(name: str, package: str) -> Path | None:
    """The folder of a build requirement, in a copy that is made once for each of its versions.

    pip's isolated build unpacks it in another place each time. By the other path, and by the new
    times of its files, every source that includes it would be compiled again.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    source = Path(spec.submodule_search_locations[0])
    copy = ROOT / "build" / "requirements" / f"{package}-{importlib.metadata.version(name)}"
    if not copy.exists():
        part = copy.with_suffix(".part")  # what is interrupted is made again
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(source, part, ignore=shutil.ignore_patterns("__pycache__"))
        part.rename(copy)
    return copy


def json_headers() -> list[str]:
    """CMake's argument for the headers of the PyPI package nlohmann-json, if it is installed."""
    package = requirement("nlohmann-json", "nlohmann_json")
    if package and (package / "include" / "nlohmann" / "json.hpp").exists():
        return [f"-DNLOHMANN_JSON_INCLUDE_DIR={package / 'include'}"]
    return []


def pybind11_config() -> str:
    """CMake's argument for pybind11: the copy of PyPI's package, or where the system has it."""
    import pybind11

    found = Path(pybind11.get_cmake_dir())
    home = Path(pybind11.__file__).parent
    if home in found.parents:
        package = requirement("pybind11", "pybind11")
        found = (package or home) / found.relative_to(home)
    return f"-Dpybind11_DIR={found}"


def compiler_cache() -> list[str]:
    """CMake's argument for ccache or sccache, if one is on PATH and no launcher is chosen."""
    chosen = "CMAKE_CXX_COMPILER_LAUNCHER"
    if chosen in os.environ or chosen in os.environ.get("CMAKE_ARGS", ""):
        return []
    cache = shutil.which("ccache") or shutil.which("sccache")
    return [f"-D{chosen}={cache}"] if cache else []


def nvcc_folders() -> list[str]:
    """CMake's argument for the folders of an nvcc from PyPI (nvidia-cuda-nvcc), if there is one.

    pip's isolated build does not import what the environment has, but knows where that lies.
    """
    spec = importlib.util.find_spec("nvidia")
    folders = [*(spec.submodule_search_locations or [])] if spec else []
    folders += [f"{sysconfig.get_path(name)}/nvidia" for name in ("purelib", "platlib")]
    found = dict.fromkeys(
        str(path.parent) for folder in folders for path in sorted(Path(folder).glob("*/bin/nvcc"))
    )
    return [f"-DCOLLOPS_NVCC_HINTS={';'.join(found)}"] if found else []


def configure_arguments() -> list[str]:
    """CMake's arguments, all of them explicit, so that they identify a build."""
    return [
        "-DCOLLOPS_PYTHON=ON",
        "-DBUILD_TESTING=OFF",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DCOLLOPS_UNITY=ON",
        f"-DPython_EXECUTABLE={sys.executable}",
        pybind11_config(),
        *json_headers(),
        *nvcc_folders(),
        *compiler_cache(),
        *(["-GNinja"] if shutil.which("ninja") else []),
        *shlex.split(os.environ.get("CMAKE_ARGS", "")),
    ]


def missing_tools() -> list[str]:
    """What is missing to compile, a line for each, as tools/preflight.sh has them before `make`."""
    asked = os.environ.get("CMAKE_ARGS", "")
    missing = []
    compilers = shlex.split(os.environ.get("CXX", ""))[:1] or ["g++", "c++", "clang++"]
    if "CMAKE_CXX_COMPILER=" not in asked and not any(map(shutil.which, compilers)):
        missing.append(f"C++ compiler {compilers[0]} not found: Debian: apt install g++")
    headers = Path(sysconfig.get_path("include"))
    if "Python_INCLUDE_DIR=" not in asked and not (headers / "Python.h").exists():
        missing.append(f"Python.h not found in {headers}: Debian: apt install python3-dev")
    return missing


def run_cmake(*command: str, env: dict[str, str] | None = None) -> None:
    """Runs CMake, whose own words, or the compiler's, stand above the one line of its failure."""
    status = subprocess.run(command, env=env).returncode
    if status != 0:
        raise SystemExit(f"collops: CMake ended with status {status}; the reason stands above")


def output(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def expected(jobs: int) -> str:
    """How long a build takes that has nothing to start from."""
    least, most = WHOLE_BUILD_S / jobs, WHOLE_BUILD_S * SLOWER / jobs
    unit, name = (60, "minutes") if least > 90 else (1, "s")
    told = f"{least / unit:.0f} to {most / unit:.0f} {name}"
    return f"compiling, {jobs} at once: {told} if nothing is compiled yet"


class CMakeBuild(build_ext):
    """Configures and builds in build/cmake-TAG, which is kept, so that a second build is short."""

    def build_extension(self, ext: Extension) -> None:
        """Puts the extension where setuptools expects it."""
        cmake, folder = self.configure()
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
        print(f"collops: {expected(int(jobs))}", flush=True)
        # ccache takes a precompiled header only if it may trust its defines and times.
        env = {"CCACHE_SLOPPINESS": "pch_defines,time_macros", **os.environ}
        run_cmake(cmake, "--build", str(folder), "-j", jobs, env=env)
        target = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        install = [cmake, "--install", str(folder), "--component", "python", "--strip"]
        run_cmake(*install, "--prefix", str(target))

    def copy_extensions_to_source(self) -> None:
        """For an editable installation."""
        super().copy_extensions_to_source()
        target = ROOT / "python" / "collops"
        for made in (Path(self.build_lib) / "collops" / name for name in BESIDE):
            if made.is_dir():
                shutil.copytree(made, target / made.name, dirs_exist_ok=True)
            elif made.exists():
                shutil.copy2(made, target)

    def configure(self) -> tuple[str, Path]:
        """Lets CMake find all that the build needs; returns CMake and the build's folder."""
        cmake = shutil.which("cmake")
        if cmake is None:
            raise SystemExit("cmake not found: install the Debian package cmake, or pip's cmake")
        if missing := missing_tools():
            raise SystemExit("\n".join(f"collops: {line}" for line in missing))
        folder = ROOT / "build" / f"cmake-{sys.implementation.cache_tag}"
        arguments = configure_arguments()
        # By its version, as an isolated build has its CMake and ninja in another place each time.
        version = output(cmake, "--version").splitlines()[0]
        self._forget_other_tools(folder, "\n".join([version, *arguments]))
        ninja = shutil.which("ninja")
        place = [f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
        run_cmake(cmake, "-S", str(ROOT), "-B", str(folder), *arguments, *place)
        return cmake, folder

    @staticmethod
    def _forget_other_tools(folder: Path, tools: str) -> None:
        # CMake keeps what it found by other arguments, and another CMake may look in another way.
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
